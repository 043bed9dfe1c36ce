! consumer.f90: consumer.c in Fortran.
program consumer
    use cflux
    use, intrinsic :: iso_fortran_env, only: real32
    implicit none
    type(fx_object) :: model, state, x, y
    real(real32) :: points(1, 64)
    integer :: i, scope

    points(1, :) = [(real(i, real32)/64, i=1, 64)]
    x = fx_from(points)
    y = fx_add(fx_mul(x, 2), 1)
    model = fx_parse_model("Dense(1 => 1)")
    state = fx_setup("Descent(0.5)", model)
    do i = 1, 400
        scope = fx_begin_step()
        call fx_update(state, model, fx_gradient(fx_mse(fx_call(model, x), y), model))
        call fx_end(scope)
    end do
    write (*, "(2a)") "version ", fx_version()
    call show("2 x + 1: ", model)
    call fx_save("consumer.bson", "model", model)
    call show("loaded: ", fx_load_key("consumer.bson", "model"))
    call fx_check()

contains

    subroutine show(what, layer)
        character(len=*), intent(in) :: what
        type(fx_object), intent(in) :: layer
        write (*, "(a, f5.3, a, f5.3)") what, fx_item(fx_child_named(layer, "weight")), " x + ", &
            fx_item(fx_child_named(layer, "bias"))
    end subroutine show
end program consumer
