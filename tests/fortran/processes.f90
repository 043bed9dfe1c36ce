! processes.f90: a Fortran program that initialises MPI itself, and trains one network in all its processes, each with
! its own data. The group is that of a communicator with the ranks of MPI_COMM_WORLD in reverse order. It prints the weight
! on each rank; check_fortran.py compares it with the formula. It is compiled with -cpp, and with -DOPENMPI for Open MPI.
program processes
    use mpi
    use cflux
    use, intrinsic :: iso_c_binding, only: c_loc, c_ptr
    use, intrinsic :: iso_fortran_env, only: real32
    implicit none
#ifdef OPENMPI
    interface
        function comm_f2c(comm) bind(C, name="MPI_Comm_f2c") result(handle)
            use, intrinsic :: iso_c_binding, only: c_int, c_ptr
            integer(c_int), value :: comm
            type(c_ptr) :: handle
        end function comm_f2c
    end interface
    type(c_ptr), target :: handle
#endif
    integer, target :: comm
    type(fx_object) :: model, state, loss, loader
    real(real32) :: x(1, 4)
    integer :: ierr, rank, members, step, scope, i, status

    call MPI_Init(ierr)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
    call fx_set_num_threads(1)
    call MPI_Comm_size(MPI_COMM_WORLD, members, ierr)
    call MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, comm, ierr)
#ifdef OPENMPI
    handle = comm_f2c(comm)
    call fx_dist_init(c_loc(handle), "openmpi", status)
#else
    call fx_dist_init(c_loc(comm), "mpich", status)
#endif
    if (status /= 0) then
        write (*, "(2a)") "no group: ", fx_error_text()
        call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
    end if
    if (fx_dist_rank() /= members - 1 - rank) call MPI_Abort(MPI_COMM_WORLD, 2, ierr)
    x(1, :) = [(real(i + 4*rank, real32)/8, i=1, 4)]
    model = fx_dist_synchronize(fx_parse_model("Dense(1 => 1; bias=false)"))
    call fx_load_into("start.safetensors", "model", model)
    state = fx_setup(fx_dist_optimiser("Descent(0.5)"), model)
    do step = 1, 3
        scope = fx_begin_step()
        loss = fx_mse(fx_call(model, fx_from(x)), fx_from(3*x))
        call fx_update(state, model, fx_gradient(loss, model))
        call fx_end(scope)
    end do
    write (*, "(a, i0, a, i0, a, f0.7)") "rank ", rank, " of ", fx_dist_total_workers(), ": ", &
        fx_item(fx_child_named(model, "weight"))
    ! fx_train divides the batches of the data of all processes. The weight becomes 3.
    loader = fx_dataloader(fx_tuple([fx_from(reshape([1.0, 2.0, 3.0, 4.0], [1, 4])), &
                                     fx_from(reshape([3.0, 6.0, 9.0, 12.0], [1, 4]))]), batchsize=4)
    call fx_train("mse", model, loader, fx_setup("Descent(0.05)", model), epochs=60, dist=.true., status=status)
    write (*, "(a, i0, a, i0, f10.4)") "rank ", rank, ": trained ", status, fx_item(fx_child_named(model, "weight"))
    call fx_check()
    call MPI_Finalize(ierr)
end program processes
