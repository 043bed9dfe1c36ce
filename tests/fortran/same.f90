! same.f90: trains a network and prints its losses and predictions. same.c does the same in C: check_fortran.py
! compares what they print.
program same
    use cflux
    use, intrinsic :: iso_fortran_env, only: real32, real64
    implicit none
    type(fx_object) :: model, state, loader, x, y, loss
    type(fx_batch) :: batch
    real(real32) :: grid(2, 64), values(1, 64)
    integer :: i, epoch, scope

    do i = 1, 64
        grid(:, i) = [real(modulo(i*7, 16), real32)/16, real(i, real32)/64]
    end do
    call fx_seed(5)
    model = fx_parse_model("Chain(Dense(2 => 8, tanh), BatchNorm(8), Dense(8 => 1))")
    state = fx_setup("AdamW(eta=0.01, lambda=0.001)", model)
    x = fx_from(grid)
    y = fx_from(spread(grid(1, :)*grid(2, :), 1, 1))
    loader = fx_dataloader(fx_tuple([x, y]), batchsize=24, shuffle=.true.)
    do epoch = 1, 5
        do while (fx_next(loader, batch))
            scope = fx_begin_record()
            loss = fx_add(fx_mse(fx_call(model, batch%x), batch%y), fx_mul(0.01, fx_mean(fx_abs(batch%x))))
            call fx_update(state, model, fx_gradient(loss, model))
            write (*, "(es24.16)") fx_item(loss)
            call fx_end(scope)
        end do
    end do
    scope = fx_begin_test()
    call fx_read_into(fx_sub(1, fx_call(model, x)), values)
    call fx_end(scope)
    write (*, "(es24.16)") real(values, real64)
    call fx_check()
end program same
