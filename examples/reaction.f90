! reaction.f90: a simulation that calls a trained network in every time step. It solves u_t = D u_xx + r(u) on a grid of
! 200 points. The network computes the reaction r for all points in one call, in place of the formula u - u**3. The
! program also runs with the formula, and prints by how much the two solutions differ.
!
! The network is trained by the command line, from a table with the columns u and rate:
!
!   cflux train --data reaction.csv --target rate --loss mse --epochs 300 --batchsize 8 \
!       --model 'Chain(Dense(1 => 16, tanh), Dense(16 => 16, tanh), Dense(16 => 1))' \
!       --schedule 'CosAnneal(0.03, 0, 300)' --save reaction.safetensors
!   ./reaction reaction.safetensors
program reaction
    use cflux
    use, intrinsic :: iso_fortran_env, only: real64
    implicit none
    integer, parameter :: n = 200, steps = 400
    real(real64), parameter :: dx = 0.25d0, dt = 0.02d0, diffusion = 1
    real(real64) :: with_network(n), with_formula(n), rate(n)
    type(fx_object) :: network
    character(len=1000) :: path
    integer :: step, i

    call get_command_argument(1, path)
    network = fx_load_predictor(path)
    call fx_check() ! ends the program if the file cannot be used

    with_formula = [(0.5d0*sin(0.1d0*i), i=1, n)]
    with_network = with_formula
    do step = 1, steps
        call reactions(with_network, rate)
        call advance(with_network, rate)
        call advance(with_formula, with_formula - with_formula**3)
        if (modulo(step, 100) == 0) write (*, "(a, i0, 2(a, f7.4))") "step ", step, ": u from ", minval(with_network), &
            " to ", maxval(with_network)
    end do
    write (*, "(a, f7.4)") "largest difference from the formula: ", maxval(abs(with_network - with_formula))

contains

    ! The reaction at every point: a batch of n observations with one feature. The scope frees the arrays.
    subroutine reactions(u, r)
        real(real64), intent(in) :: u(:)
        real(real64), intent(inout) :: r(:)
        integer :: scope
        scope = fx_begin_test()
        call fx_read_into(fx_predict(network, fx_from(reshape(u, [1, n]))), r)
        call fx_end(scope)
        call fx_check()
    end subroutine reactions

    ! One step of the explicit Euler method, without flow through the ends.
    subroutine advance(u, r)
        real(real64), intent(inout) :: u(:)
        real(real64), intent(in) :: r(:)
        real(real64) :: outside(0:n + 1)
        outside(1:n) = u
        outside([0, n + 1]) = u([1, n])
        u = u + dt*(diffusion*(outside(0:n - 1) - 2*u + outside(2:n + 1))/dx**2 + r)
    end subroutine advance
end program reaction
