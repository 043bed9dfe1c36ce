! xor.f90: xor.c in Fortran, with a wider layer and fewer epochs. A network of two layers, with batch normalisation between them, learns to classify 1000
! random points of the unit square. The class of a point (x, y) is 1 if exactly one of x and y is above 0.5. Compile:
!
!   gfortran -c $(pkg-config --variable=includedir cflux)/cflux.f90
!   gfortran xor.f90 cflux.o -o xor $(pkg-config --libs cflux)
program xor
    use cflux
    use, intrinsic :: iso_fortran_env, only: int32, real32
    implicit none
    integer, parameter :: points = 1000, epochs = 200
    real(real32) :: noisy(2, points)
    integer(int32) :: truth(points)
    type(fx_object) :: model, state, loader, loss, target
    type(fx_batch) :: batch
    integer :: epoch, scope

    call fx_seed(1)
    call fx_read_into(fx_randn([2, points]), noisy)
    noisy = noisy - floor(noisy) ! between 0 and 1
    truth = merge(1, 0, noisy(1, :) > 0.5 .neqv. noisy(2, :) > 0.5)
    target = fx_onehotbatch(fx_from(truth), 2)

    model = fx_parse_model("Chain(Dense(2 => 8, tanh), BatchNorm(8), Dense(8 => 2))")
    call fx_show(model)
    write (*, "(a, f5.1, a)") "accuracy before: ", 100*accuracy(), " %"

    state = fx_setup("Adam(0.01)", model)
    loader = fx_dataloader(fx_tuple([fx_from(noisy), target]), batchsize=64, shuffle=.true.)
    do epoch = 1, epochs
        if (epoch == epochs*3/4) call fx_adjust_eta(state, 1d-3) ! a lower rate makes the result stable
        do while (fx_next(loader, batch))
            scope = fx_begin_record() ! a training step; repeats the recorded one
            loss = fx_loss("logitcrossentropy", fx_call(model, batch%x), batch%y)
            call fx_update(state, model, fx_gradient(loss, model))
            call fx_end(scope)
        end do
    end do

    write (*, "(a, f5.1, a)") "accuracy: ", 100*accuracy(), " %"
    call fx_check()

contains

    real function accuracy()
        integer(int32) :: guess(points)
        integer :: inference
        inference = fx_begin_test() ! batch norm uses its running statistics
        call fx_read_into(fx_onecold(fx_call(model, fx_from(noisy))), guess)
        call fx_end(inference)
        accuracy = count(guess == truth)/real(points)
    end function accuracy
end program xor
