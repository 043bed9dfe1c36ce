! cflux.f90: cflux for programs in Fortran. Compile this file with your compiler, before your program:
!
!   gfortran -c $(pkg-config --variable=includedir cflux)/cflux.f90
!   gfortran program.f90 cflux.o -o program $(pkg-config --libs cflux)
!
! The module binds functions of the C library; docs/fortran.md explains it. The comments of the C headers (cflux/array.h, cflux/tree.h, ...) are the
! reference of the functions that have the same names here.
!
! * A type(fx_object) is a handle: of an array, a model, an optimiser state or a data loader. The innermost scope
!   (fx_begin_scope, ...) owns every object that a function returns, and frees it in fx_end. Assignment copies the
!   handle, not the object.
! * Fortran arrays and arrays of cflux have the same order of elements: x(3, 4) is a 3x4 array. Axes and children
!   count from 1. Class numbers (labels) count from 0, because they are data.
! * A function that fails returns an error object, and other functions pass it on. A subroutine that fails sets its
!   optional argument `status` (0: success) and leaves its other arguments unchanged, except fx_train. Both record the
!   first failure of the thread: see fx_ok, fx_error_text and fx_check.
! * Blanks at the end of a text argument are ignored.
!
! Written in Fortran 2008, with type(*) of Fortran 2018. The module has no variables that change: threads (OpenMP)
! may call it at the same time, by the rules of docs/limits.md.
module cflux
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64, error_unit, output_unit
    implicit none
    private

    public :: fx_object, fx_batch
    public :: fx_begin_scope, fx_begin_step, fx_begin_record, fx_begin_test, fx_end, fx_keep, fx_retain, fx_release
    public :: fx_ok, fx_error_text, fx_check
    public :: fx_version, fx_seed, fx_set_num_threads
    public :: fx_from, fx_full, fx_randn, fx_read_into, fx_item, fx_eval, fx_shape, fx_size, fx_show, fx_show_text
    public :: fx_add, fx_sub, fx_mul, fx_div, fx_pow, fx_max, fx_eq
    public :: fx_abs, fx_square, fx_sqrt, fx_exp, fx_log, fx_tanh
    public :: fx_sum, fx_mean, fx_maximum, fx_softmax, fx_matmul, fx_transpose, fx_reshape, fx_slice, fx_concat
    public :: fx_onehotbatch, fx_onecold
    public :: fx_parse_model, fx_call, fx_f32, fx_f64, fx_parameter_count, fx_tuple, fx_child, fx_child_named
    public :: fx_loss, fx_mse, fx_gradient, fx_pullback, fx_jacobian
    public :: fx_parse_optimiser, fx_setup, fx_update, fx_adjust_eta
    public :: fx_dataloader, fx_next, fx_batch_end, fx_train
    public :: fx_save, fx_load, fx_load_key, fx_load_into, fx_torch_state, fx_load_torch_state
    public :: fx_checkpoint_save, fx_checkpoint_load, fx_checkpoint_exists
    public :: fx_load_predictor, fx_predict, fx_predicted_classes, fx_class_name
    public :: fx_use, fx_why_not, fx_gpu, fx_cpu, fx_to, fx_device_name
    public :: fx_dist_init, fx_dist_rank, fx_dist_total_workers, fx_dist_synchronize, fx_dist_optimiser

    ! ---- types ---------------------------------------------------------------------------------------------------
    ! A handle. `p` is the pointer of C, for functions that a program binds itself; null: no object.
    type :: fx_object
        type(c_ptr) :: p = c_null_ptr
    end type fx_object

    ! The structs of C. tests/fortran compares their members and defaults with those of the headers.
    ! A member of an option struct begins at a multiple of 8 bytes. A bool is a byte with the value 0 or 1, because .true.
    ! of logical(c_bool) is another number with Intel's compilers by default.
    type, bind(C) :: c_error
        integer(c_int) :: status
        character(kind=c_char) :: op(40), message(472)
        type(c_ptr) :: file
        integer(c_int) :: line
    end type c_error

    type, bind(C) :: c_batch
        type(c_ptr) :: x = c_null_ptr, y = c_null_ptr, items = c_null_ptr
        integer(c_int64_t) :: index = 0, size = 0, total = 0
        type(c_ptr) :: fxi_pass = c_null_ptr
    end type c_batch

    ! fxi_arg: `u` is its union. A pointer or a double in it is passed as an integer of 64 bits would be.
    type, bind(C) :: c_arg
        integer(c_int) :: kind
        integer(c_int64_t) :: u
    end type c_arg

    type, bind(C) :: fx_reduce_args
        integer(c_size_t) :: fxi_size = 0
        type(c_ptr) :: x = c_null_ptr
        integer(c_int) :: dims = 2**30, pad_dims = 0
        integer(c_int8_t) :: drop = 0, pad_drop(7) = 0
    end type fx_reduce_args

    type, bind(C) :: fx_softmax_args
        integer(c_size_t) :: fxi_size = 0
        type(c_ptr) :: x = c_null_ptr
        integer(c_int) :: dims = 1, pad_dims = 0
    end type fx_softmax_args

    type, bind(C) :: fx_loss_args
        integer(c_size_t) :: fxi_size = 0
        type(c_ptr) :: pred = c_null_ptr, target = c_null_ptr
        integer(c_int8_t) :: sum = 0, pad_sum(7) = 0
        integer(c_int8_t) :: none = 0, pad_none(7) = 0
        real(c_double) :: eps = -1
        integer(c_int) :: dims = 1, pad_dims = 0
        real(c_double) :: delta = 1, smoothing = 0, gamma = 2, smooth = 1, beta = 0.7_c_double, margin = 1
        type(c_ptr) :: weights = c_null_ptr
        real(c_double) :: quantile = 0.5_c_double
    end type fx_loss_args

    type, bind(C) :: fx_update_args
        integer(c_size_t) :: fxi_size = 0
        type(c_ptr) :: state = c_null_ptr, model = c_null_ptr, gradient = c_null_ptr, guard = c_null_ptr
        integer(c_int8_t) :: sinks = 1, pad_sinks(7) = 0
        real(c_double) :: observations = -1
    end type fx_update_args

    type, bind(C) :: fx_dataloader_args
        integer(c_size_t) :: fxi_size = 0
        type(c_ptr) :: data = c_null_ptr
        integer(c_int64_t) :: batchsize = 1
        integer(c_int8_t) :: shuffle = 0, pad_shuffle(7) = 0
        integer(c_int64_t) :: seed = -1
        integer(c_int8_t) :: partial = 1, pad_partial(7) = 0
        integer(c_int) :: workers = -1, pad_workers = 0
        type(c_ptr) :: device = c_null_ptr
        integer(c_int8_t) :: parallel = 0, pad_parallel(7) = 0
        integer(c_int) :: collate = 0, pad_collate = 0
        type(c_funptr) :: collate_with = c_null_funptr
        type(c_ptr) :: collate_user = c_null_ptr
        integer(c_int8_t) :: buffer = 0, pad_buffer(7) = 0
    end type fx_dataloader_args

    type, bind(C) :: fx_train_args
        integer(c_size_t) :: fxi_size = 0
        type(c_funptr) :: loss = c_null_funptr
        type(c_ptr) :: model = c_null_ptr, data = c_null_ptr, state = c_null_ptr
        integer(c_int64_t) :: epochs = 1
        integer(c_int8_t) :: progress = 0, pad_progress(7) = 0
        type(c_funptr) :: epoch_note = c_null_funptr
        type(c_ptr) :: progress_to = c_null_ptr
        type(c_funptr) :: on_batch = c_null_funptr, on_epoch = c_null_funptr, on_start = c_null_funptr
        integer(c_int64_t) :: patience = -1
        type(c_funptr) :: metric = c_null_funptr
        integer(c_int8_t) :: keep_best = 0, pad_keep_best(7) = 0
        type(c_ptr) :: user = c_null_ptr, checkpoint = c_null_ptr
        integer(c_int64_t) :: checkpoint_every = 0
        integer(c_int) :: checkpoint_keep = 2, pad_checkpoint_keep = 0
        type(c_ptr) :: settings = c_null_ptr, log = c_null_ptr, schedule = c_null_ptr
        integer(c_int8_t) :: schedule_steps = 0, pad_schedule_steps(7) = 0
        real(c_double) :: clip_norm = 0
        type(c_ptr) :: dist = c_null_ptr
    end type fx_train_args

    type, bind(C) :: fx_checkpoint_args
        integer(c_size_t) :: fxi_size = 0
        type(c_ptr) :: model = c_null_ptr, state = c_null_ptr, data = c_null_ptr, batch = c_null_ptr
        integer(c_int64_t) :: epoch = 0, step = 0
        type(c_ptr) :: metrics = c_null_ptr
        integer(c_int) :: keep = 2, pad_keep = 0
        type(c_ptr) :: dist = c_null_ptr
    end type fx_checkpoint_args

    type, bind(C) :: fx_dist_init_args
        integer(c_size_t) :: fxi_size = 0
        integer(c_int) :: kind = 1, pad_kind = 0
        real(c_double) :: time_limit = 60
        type(c_ptr) :: communicator = c_null_ptr, library = c_null_ptr
        integer(c_int8_t) :: fixed_order = 0, pad_fixed_order(7) = 0
        integer(c_int) :: wire = 0, pad_wire = 0
    end type fx_dist_init_args

    type, bind(C) :: fx_dist_optimiser_args
        integer(c_size_t) :: fxi_size = 0
        type(c_ptr) :: rule = c_null_ptr
        integer(c_int8_t) :: shard = 0, pad_shard(7) = 0
    end type fx_dist_optimiser_args

    ! A batch of fx_next. x and y are its input and target, `items` is the whole batch; the batch owns them until the
    ! next call of fx_next or fx_batch_end.
    type :: fx_batch
        type(fx_object) :: x, y, items
        integer(int64) :: index = 0 ! number of the batch in the pass, from 1
        integer(int64) :: size = 0 ! observations in the batch
        type(c_batch), private :: c
    end type fx_batch

    integer(c_int), parameter :: f32 = 0, f64 = 1, i32 = 2, i64 = 3 ! fx_dtype
    integer(c_int), parameter :: mode_inherit = 0, mode_step = 1, mode_test = 2, mode_record = 4
    integer(c_int), parameter :: status_argument = 5, mpi = 1
    ! The name of the source file in messages. Error records point to it, so it is a variable.
    character(kind=c_char), target, save :: program_text(8) = ["F", "o", "r", "t", "r", "a", "n", c_null_char]

    ! ---- generic names -------------------------------------------------------------------------------------------
    ! fx_from(x): copies a Fortran array of rank 1 to 4 of real(real32) or real(real64), or of rank 1 or 2 of
    ! integer(int32) or integer(int64). The element type stays: real64 becomes Float64.
    interface fx_from
        procedure from_r32_1, from_r32_2, from_r32_3, from_r32_4, from_r64_1, from_r64_2, from_r64_3, from_r64_4
        procedure from_i32_1, from_i32_2, from_i64_1, from_i64_2
    end interface fx_from

    ! call fx_read_into(x, array [, status]): computes x, and copies all elements to a Fortran array, converted to its
    ! type. `array` must have as many elements as x; its rank may differ. Types and ranks: those of fx_from.
    interface fx_read_into
        procedure read_r32_1, read_r32_2, read_r32_3, read_r32_4, read_r64_1, read_r64_2, read_r64_3, read_r64_4
        procedure read_i32_1, read_i32_2, read_i64_1, read_i64_2
    end interface fx_read_into

    ! fx_setup(rule, model): the optimiser state of a model. `rule` is a text, "Adam(0.001)", or from
    ! fx_parse_optimiser.
    interface fx_setup
        procedure setup_text, setup_rule
    end interface fx_setup

    ! fx_dist_optimiser(rule): a rule whose updates use the mean of the gradients of all processes; for fx_setup.
    interface fx_dist_optimiser
        procedure dist_optimiser_text, dist_optimiser_rule
    end interface fx_dist_optimiser

    ! call fx_seed(seed): restarts the random stream of the thread.
    interface fx_seed
        procedure seed_32, seed_64
    end interface fx_seed

    ! call fx_save(path, name, object [, status]), or with arrays of names and objects.
    interface fx_save
        procedure save_one, save_many
    end interface fx_save

    ! ---- functions of C ------------------------------------------------------------------------------------------
    abstract interface
        type(c_ptr) function loss_formula(a) bind(C)
            import :: c_ptr, fx_loss_args
            type(fx_loss_args), intent(in) :: a
        end function loss_formula
    end interface

    ! Each function has an interface of its own: gfortran 12 passes arguments of procedure(...), bind(C) by reference
    ! in some calls although they have the attribute VALUE.
    interface
        type(c_ptr) function c_keep(x) bind(C, name="fxi_keep")
            import :: c_ptr
            type(c_ptr), value :: x
        end function c_keep
        type(c_ptr) function c_retain(x) bind(C, name="fxi_retain")
            import :: c_ptr
            type(c_ptr), value :: x
        end function c_retain
        subroutine c_release(x) bind(C, name="fx_release")
            import :: c_ptr
            type(c_ptr), value :: x
        end subroutine c_release
        integer(c_int) function c_eval(x) bind(C, name="fx_eval")
            import :: c_ptr, c_int
            type(c_ptr), value :: x
        end function c_eval
        integer(c_int) function c_ndims(x) bind(C, name="fx_ndims")
            import :: c_ptr, c_int
            type(c_ptr), value :: x
        end function c_ndims
        integer(c_size_t) function c_show_text(object, dst, capacity) bind(C, name="fx_show_text")
            import :: c_ptr, c_size_t, c_char
            type(c_ptr), value :: object
            character(kind=c_char), intent(inout) :: dst(*)
            integer(c_size_t), value :: capacity
        end function c_show_text
        type(c_ptr) function c_add(a, b) bind(C, name="fxi_add")
            import :: c_ptr, c_arg
            type(c_arg), value :: a, b
        end function c_add
        type(c_ptr) function c_sub(a, b) bind(C, name="fxi_sub")
            import :: c_ptr, c_arg
            type(c_arg), value :: a, b
        end function c_sub
        type(c_ptr) function c_mul(a, b) bind(C, name="fxi_mul")
            import :: c_ptr, c_arg
            type(c_arg), value :: a, b
        end function c_mul
        type(c_ptr) function c_div(a, b) bind(C, name="fxi_div")
            import :: c_ptr, c_arg
            type(c_arg), value :: a, b
        end function c_div
        type(c_ptr) function c_pow(a, b) bind(C, name="fxi_pow")
            import :: c_ptr, c_arg
            type(c_arg), value :: a, b
        end function c_pow
        type(c_ptr) function c_max(a, b) bind(C, name="fxi_max")
            import :: c_ptr, c_arg
            type(c_arg), value :: a, b
        end function c_max
        type(c_ptr) function c_eq(a, b) bind(C, name="fxi_eq")
            import :: c_ptr, c_arg
            type(c_arg), value :: a, b
        end function c_eq
        type(c_ptr) function c_abs(x) bind(C, name="fx_abs")
            import :: c_ptr
            type(c_ptr), value :: x
        end function c_abs
        type(c_ptr) function c_square(x) bind(C, name="fx_square")
            import :: c_ptr
            type(c_ptr), value :: x
        end function c_square
        type(c_ptr) function c_sqrt(x) bind(C, name="fx_sqrt")
            import :: c_ptr
            type(c_ptr), value :: x
        end function c_sqrt
        type(c_ptr) function c_exp(x) bind(C, name="fx_exp")
            import :: c_ptr
            type(c_ptr), value :: x
        end function c_exp
        type(c_ptr) function c_log(x) bind(C, name="fx_log")
            import :: c_ptr
            type(c_ptr), value :: x
        end function c_log
        type(c_ptr) function c_tanh(x) bind(C, name="fx_tanh")
            import :: c_ptr
            type(c_ptr), value :: x
        end function c_tanh
        type(c_ptr) function c_sum(a) bind(C, name="fxi_sum")
            import :: c_ptr, fx_reduce_args
            type(fx_reduce_args), intent(in) :: a
        end function c_sum
        type(c_ptr) function c_mean(a) bind(C, name="fxi_mean")
            import :: c_ptr, fx_reduce_args
            type(fx_reduce_args), intent(in) :: a
        end function c_mean
        type(c_ptr) function c_maximum(a) bind(C, name="fxi_maximum")
            import :: c_ptr, fx_reduce_args
            type(fx_reduce_args), intent(in) :: a
        end function c_maximum
        type(c_ptr) function c_matmul(a, b) bind(C, name="fx_matmul")
            import :: c_ptr
            type(c_ptr), value :: a, b
        end function c_matmul
        type(c_ptr) function c_transpose(x) bind(C, name="fx_transpose")
            import :: c_ptr
            type(c_ptr), value :: x
        end function c_transpose
        type(c_ptr) function c_onecold(x) bind(C, name="fx_onecold")
            import :: c_ptr
            type(c_ptr), value :: x
        end function c_onecold
        type(c_ptr) function c_parse_model(text) bind(C, name="fx_parse_model")
            import :: c_ptr, c_char
            character(kind=c_char), intent(in) :: text(*)
        end function c_parse_model
        type(c_ptr) function c_parse_optimiser(text) bind(C, name="fx_parse_optimiser")
            import :: c_ptr, c_char
            character(kind=c_char), intent(in) :: text(*)
        end function c_parse_optimiser
        type(c_ptr) function c_parse_schedule(text) bind(C, name="fx_parse_schedule")
            import :: c_ptr, c_char
            character(kind=c_char), intent(in) :: text(*)
        end function c_parse_schedule
        type(c_ptr) function c_tuple(n, items) bind(C, name="fxi_tuple")
            import :: c_ptr, c_int
            integer(c_int), value :: n
            type(c_ptr), intent(in) :: items(*)
        end function c_tuple
        type(c_ptr) function c_gradient(a, b) bind(C, name="fxi_gradient")
            import :: c_ptr
            type(c_ptr), value :: a, b
        end function c_gradient
        type(c_ptr) function c_jacobian(a, b) bind(C, name="fx_jacobian")
            import :: c_ptr
            type(c_ptr), value :: a, b
        end function c_jacobian
        type(c_ptr) function c_setup(a, b) bind(C, name="fx_setup")
            import :: c_ptr
            type(c_ptr), value :: a, b
        end function c_setup
        type(c_ptr) function c_load(text) bind(C, name="fx_load")
            import :: c_ptr, c_char
            character(kind=c_char), intent(in) :: text(*)
        end function c_load
        type(c_ptr) function c_load_predictor(text) bind(C, name="fx_load_predictor")
            import :: c_ptr, c_char
            character(kind=c_char), intent(in) :: text(*)
        end function c_load_predictor
        integer(c_int) function c_save(path, n, pairs) bind(C, name="fxi_save")
            import :: c_ptr, c_int, c_char
            character(kind=c_char), intent(in) :: path(*)
            integer(c_int), value :: n
            type(c_ptr), intent(in) :: pairs(*)
        end function c_save
        integer(c_int) function c_load_into(path, n, pairs) bind(C, name="fxi_load_into")
            import :: c_ptr, c_int, c_char
            character(kind=c_char), intent(in) :: path(*)
            integer(c_int), value :: n
            type(c_ptr), intent(in) :: pairs(*)
        end function c_load_into
        type(c_ptr) function c_torch_state(x) bind(C, name="fx_torch_state")
            import :: c_ptr
            type(c_ptr), value :: x
        end function c_torch_state
        integer(c_int) function c_load_torch_state(a, b) bind(C, name="fx_load_torch_state")
            import :: c_ptr, c_int
            type(c_ptr), value :: a, b
        end function c_load_torch_state
        type(c_ptr) function c_predict(a, b) bind(C, name="fx_predict")
            import :: c_ptr
            type(c_ptr), value :: a, b
        end function c_predict
        type(c_ptr) function c_predicted_classes(a, b) bind(C, name="fx_predicted_classes")
            import :: c_ptr
            type(c_ptr), value :: a, b
        end function c_predicted_classes
        type(c_ptr) function c_why_not(text) bind(C, name="fx_why_not")
            import :: c_ptr, c_char
            character(kind=c_char), intent(in) :: text(*)
        end function c_why_not
        type(c_ptr) function c_gpu(x) bind(C, name="fxi_gpu")
            import :: c_ptr
            type(c_ptr), value :: x
        end function c_gpu
        type(c_ptr) function c_cpu(x) bind(C, name="fxi_cpu")
            import :: c_ptr
            type(c_ptr), value :: x
        end function c_cpu
        type(c_ptr) function c_to(a, b) bind(C, name="fxi_to")
            import :: c_ptr
            type(c_ptr), value :: a, b
        end function c_to
        type(c_ptr) function c_device_find(text) bind(C, name="fx_device_find")
            import :: c_ptr, c_char
            character(kind=c_char), intent(in) :: text(*)
        end function c_device_find
        type(c_ptr) function c_device_of(x) bind(C, name="fx_device_of")
            import :: c_ptr
            type(c_ptr), value :: x
        end function c_device_of
        type(c_ptr) function c_device_name(x) bind(C, name="fx_device_name")
            import :: c_ptr
            type(c_ptr), value :: x
        end function c_device_name
        integer(c_int) function c_dist_rank(x) bind(C, name="fx_dist_rank")
            import :: c_ptr, c_int
            type(c_ptr), value :: x
        end function c_dist_rank
        integer(c_int) function c_dist_total_workers(x) bind(C, name="fx_dist_total_workers")
            import :: c_ptr, c_int
            type(c_ptr), value :: x
        end function c_dist_total_workers
        integer(c_size_t) function c_strlen(text) bind(C, name="strlen")
            import :: c_ptr, c_size_t
            type(c_ptr), value :: text
        end function c_strlen
        integer(c_int) function c_scope_open(mode, file, line) bind(C, name="fxi_scope_open")
            import :: c_ptr, c_int
            integer(c_int), value :: mode, line
            type(c_ptr), value :: file
        end function c_scope_open
        subroutine c_scope_close(depth) bind(C, name="fxi_scope_close")
            import :: c_int
            integer(c_int), value :: depth
        end subroutine c_scope_close
        type(c_error) function c_error_take() bind(C, name="fx_error_take")
            import :: c_error
        end function c_error_take
        integer(c_int) function c_error_status() bind(C, name="fx_error_status")
            import :: c_int
        end function c_error_status
        type(c_ptr) function c_status_name(status) bind(C, name="fx_status_name")
            import :: c_int, c_ptr
            integer(c_int), value :: status
        end function c_status_name
        type(c_ptr) function c_version() bind(C, name="fx_version")
            import :: c_ptr
        end function c_version
        subroutine c_seed(seed) bind(C, name="fx_seed")
            import :: c_int64_t
            integer(c_int64_t), value :: seed
        end subroutine c_seed
        integer(c_int) function c_set_num_threads(n) bind(C, name="fx_set_num_threads")
            import :: c_int
            integer(c_int), value :: n
        end function c_set_num_threads
        type(c_ptr) function c_from(dtype, data, ndims, sizes) bind(C, name="fxi_from")
            import :: c_ptr, c_int, c_int64_t
            integer(c_int), value :: dtype, ndims
            type(*), intent(in) :: data(*)
            integer(c_int64_t), intent(in) :: sizes(*)
        end function c_from
        type(c_ptr) function c_full(dtype, value, ndims, sizes) bind(C, name="fxi_full")
            import :: c_ptr, c_int, c_int64_t, c_double
            integer(c_int), value :: dtype, ndims
            real(c_double), value :: value
            integer(c_int64_t), intent(in) :: sizes(*)
        end function c_full
        type(c_ptr) function c_randn(dtype, ndims, sizes) bind(C, name="fxi_randn")
            import :: c_ptr, c_int, c_int64_t
            integer(c_int), value :: dtype, ndims
            integer(c_int64_t), intent(in) :: sizes(*)
        end function c_randn
        integer(c_int) function c_read_as(x, dtype, dst, count) bind(C, name="fx_read_as")
            import :: c_ptr, c_int, c_int64_t
            type(c_ptr), value :: x
            integer(c_int), value :: dtype
            type(*), intent(inout) :: dst(*)
            integer(c_int64_t), value :: count
        end function c_read_as
        real(c_double) function c_item(x) bind(C, name="fx_item")
            import :: c_ptr, c_double
            type(c_ptr), value :: x
        end function c_item
        integer(c_int64_t) function c_size_along(x, axis) bind(C, name="fx_size")
            import :: c_ptr, c_int, c_int64_t
            type(c_ptr), value :: x
            integer(c_int), value :: axis
        end function c_size_along
        type(c_ptr) function c_softmax(a) bind(C, name="fxi_softmax")
            import :: c_ptr, fx_softmax_args
            type(fx_softmax_args), intent(in) :: a
        end function c_softmax
        type(c_ptr) function c_reshape(x, ndims, sizes) bind(C, name="fxi_reshape")
            import :: c_ptr, c_int, c_int64_t
            type(c_ptr), value :: x
            integer(c_int), value :: ndims
            integer(c_int64_t), intent(in) :: sizes(*)
        end function c_reshape
        type(c_ptr) function c_slice(x, axis, start, stop) bind(C, name="fx_slice")
            import :: c_ptr, c_int, c_int64_t
            type(c_ptr), value :: x
            integer(c_int), value :: axis
            integer(c_int64_t), value :: start, stop
        end function c_slice
        type(c_ptr) function c_concat(axis, n, x) bind(C, name="fxi_concat")
            import :: c_ptr, c_int
            integer(c_int), value :: axis, n
            type(c_ptr), intent(in) :: x(*)
        end function c_concat
        type(c_ptr) function c_onehotbatch(labels, nclasses) bind(C, name="fx_onehotbatch")
            import :: c_ptr, c_int64_t
            type(c_ptr), value :: labels
            integer(c_int64_t), value :: nclasses
        end function c_onehotbatch
        type(c_ptr) function c_call(model, n, args) bind(C, name="fxi_call")
            import :: c_ptr, c_int
            type(c_ptr), value :: model
            integer(c_int), value :: n
            type(c_ptr), intent(in) :: args(*)
        end function c_call
        type(c_ptr) function c_in_precision(dtype, model) bind(C, name="fxi_in_precision")
            import :: c_ptr, c_int
            integer(c_int), value :: dtype
            type(c_ptr), value :: model
        end function c_in_precision
        integer(c_int64_t) function c_parameter_count(model) bind(C, name="fx_parameter_count")
            import :: c_ptr, c_int64_t
            type(c_ptr), value :: model
        end function c_parameter_count
        type(c_ptr) function c_child(object, i) bind(C, name="fx_child")
            import :: c_ptr, c_int64_t
            type(c_ptr), value :: object
            integer(c_int64_t), value :: i
        end function c_child
        type(c_ptr) function c_child_named(object, name) bind(C, name="fx_child_named")
            import :: c_ptr, c_char
            type(c_ptr), value :: object
            character(kind=c_char), intent(in) :: name(*)
        end function c_child_named
        type(c_funptr) function c_parse_loss(text) bind(C, name="fx_parse_loss")
            import :: c_funptr, c_char
            character(kind=c_char), intent(in) :: text(*)
        end function c_parse_loss
        integer(c_int) function c_pullback(y, gy, x, n, gradients) bind(C, name="fx_pullback")
            import :: c_ptr, c_int
            type(c_ptr), value :: y, gy
            type(c_ptr), intent(in) :: x(*)
            integer(c_int), value :: n
            type(c_ptr), intent(inout) :: gradients(*)
        end function c_pullback
        integer(c_int) function c_update(a) bind(C, name="fxi_update")
            import :: c_int, fx_update_args
            type(fx_update_args), intent(in) :: a
        end function c_update
        integer(c_int) function c_adjust_eta(state, eta) bind(C, name="fx_adjust_eta")
            import :: c_ptr, c_int, c_double
            type(c_ptr), value :: state
            real(c_double), value :: eta
        end function c_adjust_eta
        type(c_ptr) function c_dataloader(a) bind(C, name="fxi_dataloader")
            import :: c_ptr, fx_dataloader_args
            type(fx_dataloader_args), intent(in) :: a
        end function c_dataloader
        logical(c_bool) function c_next(loader, batch) bind(C, name="fx_next")
            import :: c_ptr, c_batch, c_bool
            type(c_ptr), value :: loader
            type(c_batch), intent(inout) :: batch
        end function c_next
        subroutine c_batch_end(batch) bind(C, name="fx_batch_end")
            import :: c_batch
            type(c_batch), intent(inout) :: batch
        end subroutine c_batch_end
        integer(c_int) function c_train(a) bind(C, name="fxi_train")
            import :: c_int, fx_train_args
            type(fx_train_args), intent(in) :: a
        end function c_train
        type(c_ptr) function c_load_key(path, name) bind(C, name="fx_load_key")
            import :: c_ptr, c_char
            character(kind=c_char), intent(in) :: path(*), name(*)
        end function c_load_key
        type(c_ptr) function c_class_name(predictor, k) bind(C, name="fx_class_name")
            import :: c_ptr, c_int64_t
            type(c_ptr), value :: predictor
            integer(c_int64_t), value :: k
        end function c_class_name
        integer(c_int) function c_use(backend) bind(C, name="fx_use")
            import :: c_char, c_int
            character(kind=c_char), intent(in) :: backend(*)
        end function c_use
        integer(c_int) function c_dist_init(a) bind(C, name="fxi_dist_init")
            import :: c_int, fx_dist_init_args
            type(fx_dist_init_args), intent(in) :: a
        end function c_dist_init
        logical(c_bool) function c_dist_initialized(kind) bind(C, name="fx_dist_initialized")
            import :: c_int, c_bool
            integer(c_int), value :: kind
        end function c_dist_initialized
        type(c_ptr) function c_dist_backend(kind) bind(C, name="fx_dist_backend")
            import :: c_int, c_ptr
            integer(c_int), value :: kind
        end function c_dist_backend
        type(c_ptr) function c_dist_synchronize(dist, x, root) bind(C, name="fx_dist_synchronize")
            import :: c_int, c_ptr
            type(c_ptr), value :: dist, x
            integer(c_int), value :: root
        end function c_dist_synchronize
        type(c_ptr) function c_dist_optimiser(dist, a) bind(C, name="fxi_dist_optimiser")
            import :: c_ptr, fx_dist_optimiser_args
            type(c_ptr), value :: dist
            type(fx_dist_optimiser_args), intent(in) :: a
        end function c_dist_optimiser
        integer(c_int) function c_checkpoint_save(path, a) bind(C, name="fxi_checkpoint_save")
            import :: c_char, c_int, fx_checkpoint_args
            character(kind=c_char), intent(in) :: path(*)
            type(fx_checkpoint_args), intent(in) :: a
        end function c_checkpoint_save
        integer(c_int) function c_checkpoint_load(path, a) bind(C, name="fxi_checkpoint_load")
            import :: c_char, c_int, fx_checkpoint_args
            character(kind=c_char), intent(in) :: path(*)
            type(fx_checkpoint_args), intent(inout) :: a
        end function c_checkpoint_load
        logical(c_bool) function c_checkpoint_exists(path) bind(C, name="fx_checkpoint_exists")
            import :: c_bool, c_char
            character(kind=c_char), intent(in) :: path(*)
        end function c_checkpoint_exists
    end interface

contains

    ! ---- texts and numbers -----------------------------------------------------------------------------------------
    function c_text(text) result(c)
        character(len=*), intent(in) :: text
        character(kind=c_char, len=:), allocatable :: c
        c = trim(text)//c_null_char
    end function c_text

    function fortran_text(p) result(text)
        type(c_ptr), intent(in) :: p
        character(len=:), allocatable :: text
        character(kind=c_char), pointer :: letters(:)
        integer(c_size_t) :: i, n
        if (.not. c_associated(p)) then
            text = ""
            return
        end if
        n = c_strlen(p)
        call c_f_pointer(p, letters, [n])
        allocate (character(len=n) :: text)
        do i = 1, n
            text(i:i) = letters(i)
        end do
    end function fortran_text

    ! Returns the text of `letters` up to its null character.
    function text_before_null(letters) result(text)
        character(kind=c_char), intent(in) :: letters(:)
        character(len=:), allocatable :: text
        integer :: i, n
        n = 0
        do while (n < size(letters))
            if (letters(n + 1) == c_null_char) exit
            n = n + 1
        end do
        allocate (character(len=n) :: text)
        do i = 1, n
            text(i:i) = letters(i)
        end do
    end function text_before_null

    subroutine set_status(status, value)
        integer, intent(out), optional :: status
        integer(c_int), intent(in) :: value
        if (present(status)) status = int(value)
    end subroutine set_status

    ! A bool of C.
    integer(c_int8_t) function flag(x)
        logical, intent(in) :: x
        flag = merge(1_c_int8_t, 0_c_int8_t, x)
    end function flag

    ! A number or an array as an argument of C. Every other type becomes NULL, which the C function reports.
    function number_or_array(x) result(a)
        class(*), intent(in) :: x
        type(c_arg) :: a
        select type (x)
        type is (fx_object)
            a = c_arg(0, transfer(x%p, 0_c_int64_t))
        type is (real(real32))
            a = c_arg(1, transfer(real(x, c_double), 0_c_int64_t))
        type is (real(real64))
            a = c_arg(1, transfer(real(x, c_double), 0_c_int64_t))
        type is (integer(int32))
            a = c_arg(2, int(x, c_int64_t))
        type is (integer(int64))
            a = c_arg(2, int(x, c_int64_t))
        class default
            a = c_arg(0, 0)
        end select
    end function number_or_array

    ! The set with one axis, which counts from 1. All axes if it is absent.
    function axes_of(dim) result(bits)
        integer, intent(in), optional :: dim
        integer(c_int) :: bits
        bits = 2_c_int**30
        if (present(dim)) then
            bits = 2_c_int**29 ! an axis that no array has
            if (dim >= 1 .and. dim <= 29) bits = 2_c_int**(dim - 1)
        end if
    end function axes_of

    ! ---- scopes ----------------------------------------------------------------------------------------------------
    ! scope = fx_begin_scope([line]) opens a scope, and fx_end(scope) closes it: it frees the objects that were made
    ! since, except those of fx_keep and fx_retain. Closing a scope also closes the scopes inside it that are still
    ! open, e.g. after a `return` between the two calls. `line` (__LINE__, with a preprocessor) appears in messages.
    ! Objects made outside of all scopes live until the thread ends: open a scope in every loop.
    integer function fx_begin_scope(line) result(scope)
        integer, intent(in), optional :: line
        scope = open_scope(mode_inherit, line)
    end function fx_begin_scope

    ! A training step: FX_STEP of C. Dropout is active, and batch norm uses the statistics of the batch.
    integer function fx_begin_step(line) result(scope)
        integer, intent(in), optional :: line
        scope = open_scope(mode_step, line)
    end function fx_begin_step

    ! A training step that is recorded and repeated, which is faster: FX_RECORD of C. If a program alternates between
    ! two training loops, give them different numbers `line`: each number has a recording of its own.
    integer function fx_begin_record(line) result(scope)
        integer, intent(in), optional :: line
        scope = open_scope(mode_record, line)
    end function fx_begin_record

    ! Inference: FX_TEST of C.
    integer function fx_begin_test(line) result(scope)
        integer, intent(in), optional :: line
        scope = open_scope(mode_test, line)
    end function fx_begin_test

    integer function open_scope(mode, line) result(scope)
        integer(c_int), intent(in) :: mode
        integer, intent(in), optional :: line
        integer(c_int) :: number
        number = 0
        if (present(line)) number = int(line, c_int)
        scope = int(c_scope_open(mode, c_loc(program_text), number))
    end function open_scope

    subroutine fx_end(scope)
        integer, intent(in) :: scope
        call c_scope_close(int(scope, c_int))
    end subroutine fx_end

    ! Moves an object from the innermost scope to the enclosing one, and returns it.
    function fx_keep(object) result(same)
        type(fx_object), intent(in) :: object
        type(fx_object) :: same
        same%p = c_keep(object%p)
    end function fx_keep

    ! Adds a reference, which keeps an object alive after its scope until fx_release removes the reference.
    function fx_retain(object) result(same)
        type(fx_object), intent(in) :: object
        type(fx_object) :: same
        same%p = c_retain(object%p)
    end function fx_retain

    subroutine fx_release(object)
        type(fx_object), intent(inout) :: object
        call c_release(object%p)
        object%p = c_null_ptr
    end subroutine fx_release

    ! ---- errors ----------------------------------------------------------------------------------------------------
    ! Returns whether nothing has failed in this thread since its record was last taken.
    logical function fx_ok()
        fx_ok = c_error_status() == 0
    end function fx_ok

    ! Returns the message of the first failure, and clears the record; "" if nothing failed.
    function fx_error_text() result(text)
        character(len=:), allocatable :: text
        type(c_error) :: error
        character(len=20) :: line
        error = c_error_take()
        text = ""
        if (error%status == 0) return
        text = text_before_null(error%message)//" ("//fortran_text(c_status_name(error%status))
        if (error%line > 0) then
            write (line, "(i0)") error%line
            text = text//", in the scope at line "//trim(line)
        end if
        text = text//")"
    end function fx_error_text

    ! Ends the program with the message if something has failed; the exit status is then 1.
    subroutine fx_check()
        if (fx_ok()) return
        write (error_unit, "(2a)") "error: ", fx_error_text()
        flush (error_unit)
        error stop 1
    end subroutine fx_check

    ! ---- the library -----------------------------------------------------------------------------------------------
    function fx_version() result(text)
        character(len=:), allocatable :: text
        text = fortran_text(c_version())
    end function fx_version

    subroutine seed_32(seed)
        integer(int32), intent(in) :: seed
        call c_seed(int(seed, c_int64_t))
    end subroutine seed_32

    subroutine seed_64(seed)
        integer(int64), intent(in) :: seed
        call c_seed(int(seed, c_int64_t))
    end subroutine seed_64

    ! Sets how many threads the CPU backend uses in this process, the calling one included; 0: default.
    subroutine fx_set_num_threads(n, status)
        integer, intent(in) :: n
        integer, intent(out), optional :: status
        call set_status(status, c_set_num_threads(int(n, c_int)))
    end subroutine fx_set_num_threads

    ! ---- arrays ----------------------------------------------------------------------------------------------------
    function from_r32_1(x) result(a)
        real(real32), intent(in) :: x(:)
        type(fx_object) :: a
        a%p = c_from(f32, x, 1, shape(x, c_int64_t))
    end function from_r32_1

    function from_r32_2(x) result(a)
        real(real32), intent(in) :: x(:, :)
        type(fx_object) :: a
        a%p = c_from(f32, x, 2, shape(x, c_int64_t))
    end function from_r32_2

    function from_r32_3(x) result(a)
        real(real32), intent(in) :: x(:, :, :)
        type(fx_object) :: a
        a%p = c_from(f32, x, 3, shape(x, c_int64_t))
    end function from_r32_3

    function from_r32_4(x) result(a)
        real(real32), intent(in) :: x(:, :, :, :)
        type(fx_object) :: a
        a%p = c_from(f32, x, 4, shape(x, c_int64_t))
    end function from_r32_4

    function from_r64_1(x) result(a)
        real(real64), intent(in) :: x(:)
        type(fx_object) :: a
        a%p = c_from(f64, x, 1, shape(x, c_int64_t))
    end function from_r64_1

    function from_r64_2(x) result(a)
        real(real64), intent(in) :: x(:, :)
        type(fx_object) :: a
        a%p = c_from(f64, x, 2, shape(x, c_int64_t))
    end function from_r64_2

    function from_r64_3(x) result(a)
        real(real64), intent(in) :: x(:, :, :)
        type(fx_object) :: a
        a%p = c_from(f64, x, 3, shape(x, c_int64_t))
    end function from_r64_3

    function from_r64_4(x) result(a)
        real(real64), intent(in) :: x(:, :, :, :)
        type(fx_object) :: a
        a%p = c_from(f64, x, 4, shape(x, c_int64_t))
    end function from_r64_4

    function from_i32_1(x) result(a)
        integer(int32), intent(in) :: x(:)
        type(fx_object) :: a
        a%p = c_from(i32, x, 1, shape(x, c_int64_t))
    end function from_i32_1

    function from_i32_2(x) result(a)
        integer(int32), intent(in) :: x(:, :)
        type(fx_object) :: a
        a%p = c_from(i32, x, 2, shape(x, c_int64_t))
    end function from_i32_2

    function from_i64_1(x) result(a)
        integer(int64), intent(in) :: x(:)
        type(fx_object) :: a
        a%p = c_from(i64, x, 1, shape(x, c_int64_t))
    end function from_i64_1

    function from_i64_2(x) result(a)
        integer(int64), intent(in) :: x(:, :)
        type(fx_object) :: a
        a%p = c_from(i64, x, 2, shape(x, c_int64_t))
    end function from_i64_2

    subroutine read_r32_1(x, array, status)
        type(fx_object), intent(in) :: x
        real(real32), intent(inout) :: array(:)
        integer, intent(out), optional :: status
        call set_status(status, c_read_as(x%p, f32, array, size(array, kind=c_int64_t)))
    end subroutine read_r32_1

    subroutine read_r32_2(x, array, status)
        type(fx_object), intent(in) :: x
        real(real32), intent(inout) :: array(:, :)
        integer, intent(out), optional :: status
        call set_status(status, c_read_as(x%p, f32, array, size(array, kind=c_int64_t)))
    end subroutine read_r32_2

    subroutine read_r32_3(x, array, status)
        type(fx_object), intent(in) :: x
        real(real32), intent(inout) :: array(:, :, :)
        integer, intent(out), optional :: status
        call set_status(status, c_read_as(x%p, f32, array, size(array, kind=c_int64_t)))
    end subroutine read_r32_3

    subroutine read_r32_4(x, array, status)
        type(fx_object), intent(in) :: x
        real(real32), intent(inout) :: array(:, :, :, :)
        integer, intent(out), optional :: status
        call set_status(status, c_read_as(x%p, f32, array, size(array, kind=c_int64_t)))
    end subroutine read_r32_4

    subroutine read_r64_1(x, array, status)
        type(fx_object), intent(in) :: x
        real(real64), intent(inout) :: array(:)
        integer, intent(out), optional :: status
        call set_status(status, c_read_as(x%p, f64, array, size(array, kind=c_int64_t)))
    end subroutine read_r64_1

    subroutine read_r64_2(x, array, status)
        type(fx_object), intent(in) :: x
        real(real64), intent(inout) :: array(:, :)
        integer, intent(out), optional :: status
        call set_status(status, c_read_as(x%p, f64, array, size(array, kind=c_int64_t)))
    end subroutine read_r64_2

    subroutine read_r64_3(x, array, status)
        type(fx_object), intent(in) :: x
        real(real64), intent(inout) :: array(:, :, :)
        integer, intent(out), optional :: status
        call set_status(status, c_read_as(x%p, f64, array, size(array, kind=c_int64_t)))
    end subroutine read_r64_3

    subroutine read_r64_4(x, array, status)
        type(fx_object), intent(in) :: x
        real(real64), intent(inout) :: array(:, :, :, :)
        integer, intent(out), optional :: status
        call set_status(status, c_read_as(x%p, f64, array, size(array, kind=c_int64_t)))
    end subroutine read_r64_4

    subroutine read_i32_1(x, array, status)
        type(fx_object), intent(in) :: x
        integer(int32), intent(inout) :: array(:)
        integer, intent(out), optional :: status
        call set_status(status, c_read_as(x%p, i32, array, size(array, kind=c_int64_t)))
    end subroutine read_i32_1

    subroutine read_i32_2(x, array, status)
        type(fx_object), intent(in) :: x
        integer(int32), intent(inout) :: array(:, :)
        integer, intent(out), optional :: status
        call set_status(status, c_read_as(x%p, i32, array, size(array, kind=c_int64_t)))
    end subroutine read_i32_2

    subroutine read_i64_1(x, array, status)
        type(fx_object), intent(in) :: x
        integer(int64), intent(inout) :: array(:)
        integer, intent(out), optional :: status
        call set_status(status, c_read_as(x%p, i64, array, size(array, kind=c_int64_t)))
    end subroutine read_i64_1

    subroutine read_i64_2(x, array, status)
        type(fx_object), intent(in) :: x
        integer(int64), intent(inout) :: array(:, :)
        integer, intent(out), optional :: status
        call set_status(status, c_read_as(x%p, i64, array, size(array, kind=c_int64_t)))
    end subroutine read_i64_2

    ! A Float32 array of these sizes, [3, 4], whose elements equal `value`.
    function fx_full(value, sizes) result(a)
        class(*), intent(in) :: value
        integer, intent(in) :: sizes(:)
        type(fx_object) :: a
        real(c_double) :: x
        integer(c_int) :: dtype
        x = 0
        dtype = f32
        select type (value)
        type is (real(real32))
            x = real(value, c_double)
        type is (real(real64))
            x = real(value, c_double)
        type is (integer(int32))
            x = real(value, c_double)
        type is (integer(int64))
            x = real(value, c_double)
        class default
            dtype = -1 ! no element type: C reports it
        end select
        a%p = c_full(dtype, x, size(sizes), int(sizes, c_int64_t))
    end function fx_full

    ! A Float32 array of normally distributed numbers.
    function fx_randn(sizes) result(a)
        integer, intent(in) :: sizes(:)
        type(fx_object) :: a
        a%p = c_randn(f32, size(sizes), int(sizes, c_int64_t))
    end function fx_randn

    ! The value of an array with one element; NaN if the call fails.
    real(real64) function fx_item(x)
        type(fx_object), intent(in) :: x
        fx_item = c_item(x%p)
    end function fx_item

    ! Computes all arrays of an object.
    subroutine fx_eval(object, status)
        type(fx_object), intent(in) :: object
        integer, intent(out), optional :: status
        call set_status(status, c_eval(object%p))
    end subroutine fx_eval

    ! The sizes of an array, as `shape`; of size 0 for an error object.
    function fx_shape(x) result(sizes)
        type(fx_object), intent(in) :: x
        integer, allocatable :: sizes(:)
        integer :: i
        sizes = [(fx_size(x, i), i=1, int(c_ndims(x%p)))]
    end function fx_shape

    ! The size along an axis, as size(x, dim); 1 for an axis that x does not have; 0 for an error object.
    integer function fx_size(x, dim)
        type(fx_object), intent(in) :: x
        integer, intent(in) :: dim
        fx_size = int(c_size_along(x%p, int(dim - 1, c_int)))
    end function fx_size

    ! Evaluates an object and returns the text that Flux and Julia print for it: elements, or the layers of a model.
    function fx_show_text(object) result(text)
        type(fx_object), intent(in) :: object
        character(len=:), allocatable :: text
        character(kind=c_char), allocatable :: letters(:)
        integer(c_size_t) :: n
        allocate (letters(1))
        n = c_show_text(object%p, letters, 1_c_size_t)
        deallocate (letters)
        allocate (letters(n + 1))
        n = c_show_text(object%p, letters, n + 1)
        text = text_before_null(letters)
    end function fx_show_text

    ! Prints fx_show_text to the standard output, through Fortran.
    subroutine fx_show(object)
        type(fx_object), intent(in) :: object
        write (output_unit, "(a)") fx_show_text(object)
    end subroutine fx_show

    ! ---- operations ------------------------------------------------------------------------------------------------
    ! Elementwise functions of two arrays, or of an array and a number (real or integer): fx_sub(1, x). Sizes
    ! broadcast as in Julia: an axis of size 1 is repeated.
    function fx_add(a, b) result(y)
        class(*), intent(in) :: a, b
        type(fx_object) :: y
        y%p = c_add(number_or_array(a), number_or_array(b))
    end function fx_add

    function fx_sub(a, b) result(y)
        class(*), intent(in) :: a, b
        type(fx_object) :: y
        y%p = c_sub(number_or_array(a), number_or_array(b))
    end function fx_sub

    function fx_mul(a, b) result(y)
        class(*), intent(in) :: a, b
        type(fx_object) :: y
        y%p = c_mul(number_or_array(a), number_or_array(b))
    end function fx_mul

    function fx_div(a, b) result(y)
        class(*), intent(in) :: a, b
        type(fx_object) :: y
        y%p = c_div(number_or_array(a), number_or_array(b))
    end function fx_div

    function fx_pow(a, b) result(y)
        class(*), intent(in) :: a, b
        type(fx_object) :: y
        y%p = c_pow(number_or_array(a), number_or_array(b))
    end function fx_pow

    function fx_max(a, b) result(y)
        class(*), intent(in) :: a, b
        type(fx_object) :: y
        y%p = c_max(number_or_array(a), number_or_array(b))
    end function fx_max

    function fx_eq(a, b) result(y)
        class(*), intent(in) :: a, b
        type(fx_object) :: y
        y%p = c_eq(number_or_array(a), number_or_array(b))
    end function fx_eq

    function fx_abs(x) result(y)
        type(fx_object), intent(in) :: x
        type(fx_object) :: y
        y%p = c_abs(x%p)
    end function fx_abs

    function fx_square(x) result(y)
        type(fx_object), intent(in) :: x
        type(fx_object) :: y
        y%p = c_square(x%p)
    end function fx_square

    function fx_sqrt(x) result(y)
        type(fx_object), intent(in) :: x
        type(fx_object) :: y
        y%p = c_sqrt(x%p)
    end function fx_sqrt

    function fx_exp(x) result(y)
        type(fx_object), intent(in) :: x
        type(fx_object) :: y
        y%p = c_exp(x%p)
    end function fx_exp

    function fx_log(x) result(y)
        type(fx_object), intent(in) :: x
        type(fx_object) :: y
        y%p = c_log(x%p)
    end function fx_log

    function fx_tanh(x) result(y)
        type(fx_object), intent(in) :: x
        type(fx_object) :: y
        y%p = c_tanh(x%p)
    end function fx_tanh

    ! Reductions, as sum(x) and sum(x, dim): with `dim` that axis is removed, without it the result has no axes.
    ! keep = .true. leaves axes of size 1, which broadcast against x.
    function reduced(x, dim, keep) result(a)
        type(fx_object), intent(in) :: x
        integer, intent(in), optional :: dim
        logical, intent(in), optional :: keep
        type(fx_reduce_args) :: a
        a%fxi_size = c_sizeof(a)
        a%x = x%p
        a%dims = axes_of(dim)
        a%drop = flag(.true.)
        if (present(keep)) a%drop = flag(.not. keep)
    end function reduced

    function fx_sum(x, dim, keep) result(y)
        type(fx_object), intent(in) :: x
        integer, intent(in), optional :: dim
        logical, intent(in), optional :: keep
        type(fx_object) :: y
        y%p = c_sum(reduced(x, dim, keep))
    end function fx_sum

    function fx_mean(x, dim, keep) result(y)
        type(fx_object), intent(in) :: x
        integer, intent(in), optional :: dim
        logical, intent(in), optional :: keep
        type(fx_object) :: y
        y%p = c_mean(reduced(x, dim, keep))
    end function fx_mean

    function fx_maximum(x, dim, keep) result(y)
        type(fx_object), intent(in) :: x
        integer, intent(in), optional :: dim
        logical, intent(in), optional :: keep
        type(fx_object) :: y
        y%p = c_maximum(reduced(x, dim, keep))
    end function fx_maximum

    ! softmax along an axis; default: the first one.
    function fx_softmax(x, dim) result(y)
        type(fx_object), intent(in) :: x
        integer, intent(in), optional :: dim
        type(fx_object) :: y
        type(fx_softmax_args) :: a
        a%fxi_size = c_sizeof(a)
        a%x = x%p
        if (present(dim)) a%dims = axes_of(dim)
        y%p = c_softmax(a)
    end function fx_softmax

    function fx_matmul(a, b) result(y)
        type(fx_object), intent(in) :: a, b
        type(fx_object) :: y
        y%p = c_matmul(a%p, b%p)
    end function fx_matmul

    function fx_transpose(x) result(y)
        type(fx_object), intent(in) :: x
        type(fx_object) :: y
        y%p = c_transpose(x%p)
    end function fx_transpose

    ! The same elements in the same order with other sizes; one size may be -1.
    function fx_reshape(x, sizes) result(y)
        type(fx_object), intent(in) :: x
        integer, intent(in) :: sizes(:)
        type(fx_object) :: y
        y%p = c_reshape(x%p, size(sizes), int(sizes, c_int64_t))
    end function fx_reshape

    ! The elements first to last along an axis, as x(:, first:last).
    function fx_slice(x, dim, first, last) result(y)
        type(fx_object), intent(in) :: x
        integer, intent(in) :: dim, first, last
        type(fx_object) :: y
        y%p = c_slice(x%p, int(dim - 1, c_int), int(first, c_int64_t) - 1, int(last, c_int64_t))
    end function fx_slice

    ! Joins arrays along an existing axis: fx_concat(1, [a, b]).
    function fx_concat(dim, arrays) result(y)
        integer, intent(in) :: dim
        type(fx_object), intent(in) :: arrays(:)
        type(fx_object) :: y
        y%p = c_concat(int(dim - 1, c_int), size(arrays), pointers(arrays))
    end function fx_concat

    function pointers(objects) result(p)
        type(fx_object), intent(in) :: objects(:)
        type(c_ptr) :: p(size(objects))
        integer :: i
        do i = 1, size(objects)
            p(i) = objects(i)%p
        end do
    end function pointers

    ! Column j has a 1 in the row of class labels(j), which counts from 0.
    function fx_onehotbatch(labels, nclasses) result(y)
        type(fx_object), intent(in) :: labels
        integer, intent(in) :: nclasses
        type(fx_object) :: y
        y%p = c_onehotbatch(labels%p, int(nclasses, c_int64_t))
    end function fx_onehotbatch

    ! The class number (from 0) of the largest element of each column.
    function fx_onecold(x) result(y)
        type(fx_object), intent(in) :: x
        type(fx_object) :: y
        y%p = c_onecold(x%p)
    end function fx_onecold

    ! ---- models ----------------------------------------------------------------------------------------------------
    ! Makes a model from a text in Flux's notation: "Chain(Dense(2 => 3, tanh), Dense(3 => 1))".
    function fx_parse_model(text) result(model)
        character(len=*), intent(in) :: text
        type(fx_object) :: model
        model%p = c_parse_model(c_text(text))
    end function fx_parse_model

    ! The result of a model for one input, or for two.
    function fx_call(model, x, x2) result(y)
        type(fx_object), intent(in) :: model, x
        type(fx_object), intent(in), optional :: x2
        type(fx_object) :: y
        if (present(x2)) then
            y%p = c_call(model%p, 2, [x%p, x2%p])
        else
            y%p = c_call(model%p, 1, [x%p])
        end if
    end function fx_call

    ! A copy of a model or an array with floating-point arrays of Float32 or Float64.
    function fx_f32(object) result(y)
        type(fx_object), intent(in) :: object
        type(fx_object) :: y
        y%p = c_in_precision(f32, object%p)
    end function fx_f32

    function fx_f64(object) result(y)
        type(fx_object), intent(in) :: object
        type(fx_object) :: y
        y%p = c_in_precision(f64, object%p)
    end function fx_f64

    integer(int64) function fx_parameter_count(model)
        type(fx_object), intent(in) :: model
        fx_parameter_count = c_parameter_count(model%p)
    end function fx_parameter_count

    function fx_tuple(items) result(tuple)
        type(fx_object), intent(in) :: items(:)
        type(fx_object) :: tuple
        tuple%p = c_tuple(size(items), pointers(items))
    end function fx_tuple

    ! A child of a tuple, a model or a file: by its number, from 1, or by its name. %p is null if the field of
    ! the object is NULL. The object holds the child.
    function fx_child(object, i) result(child)
        type(fx_object), intent(in) :: object
        integer, intent(in) :: i
        type(fx_object) :: child
        child%p = c_child(object%p, int(i, c_int64_t) - 1)
    end function fx_child

    function fx_child_named(object, name) result(child)
        type(fx_object), intent(in) :: object
        character(len=*), intent(in) :: name
        type(fx_object) :: child
        child%p = c_child_named(object%p, c_text(name))
    end function fx_child_named

    ! ---- losses and gradients --------------------------------------------------------------------------------------
    ! A loss by the name it has in cflux/losses.h, with its default options: fx_loss("logitcrossentropy", y, target).
    function fx_loss(name, prediction, target) result(loss)
        character(len=*), intent(in) :: name
        type(fx_object), intent(in) :: prediction, target
        type(fx_object) :: loss
        loss%p = loss_of(c_parse_loss(c_text(name)), prediction%p, target%p)
    end function fx_loss

    function loss_of(formula, prediction, target) result(loss)
        type(c_funptr), intent(in) :: formula
        type(c_ptr), intent(in) :: prediction, target
        type(c_ptr) :: loss
        procedure(loss_formula), pointer :: f
        type(fx_loss_args) :: a
        a%fxi_size = c_sizeof(a)
        a%pred = prediction
        a%target = target
        call c_f_procpointer(formula, f)
        loss = f(a)
    end function loss_of

    ! The mean of the squared errors.
    function fx_mse(prediction, target) result(loss)
        type(fx_object), intent(in) :: prediction, target
        type(fx_object) :: loss
        loss = fx_loss("mse", prediction, target)
    end function fx_mse

    ! The gradient of a loss with respect to a model, or to an array.
    function fx_gradient(loss, model) result(gradient)
        type(fx_object), intent(in) :: loss, model
        type(fx_object) :: gradient
        gradient%p = c_gradient(loss%p, model%p)
    end function fx_gradient

    ! The vector-Jacobian product d sum(y*gy) / dx of an array y that was computed from the array x: the adjoint.
    function fx_pullback(y, gy, x) result(gx)
        type(fx_object), intent(in) :: y, gy, x
        type(fx_object) :: gx
        type(c_ptr) :: gradients(1)
        integer(c_int) :: status
        gradients(1) = c_null_ptr
        status = c_pullback(y%p, gy%p, [x%p], 1, gradients)
        gx%p = gradients(1)
    end function fx_pullback

    ! The Jacobian of an array y that was computed from the array x: the matrix of d y(i) / d x(j), with one row for
    ! each element of y, and one column for each element of x.
    function fx_jacobian(y, x) result(matrix)
        type(fx_object), intent(in) :: y, x
        type(fx_object) :: matrix
        matrix%p = c_jacobian(y%p, x%p)
    end function fx_jacobian

    ! ---- optimisers ------------------------------------------------------------------------------------------------
    ! Makes a rule from a text: "Adam(0.001)", "OptimiserChain(ClipGrad(1), Adam(0.001))".
    function fx_parse_optimiser(text) result(rule)
        character(len=*), intent(in) :: text
        type(fx_object) :: rule
        rule%p = c_parse_optimiser(c_text(text))
    end function fx_parse_optimiser

    function setup_text(rule, model) result(state)
        character(len=*), intent(in) :: rule
        type(fx_object), intent(in) :: model
        type(fx_object) :: state
        state = setup_rule(fx_parse_optimiser(rule), model)
    end function setup_text

    function setup_rule(rule, model) result(state)
        type(fx_object), intent(in) :: rule, model
        type(fx_object) :: state
        state%p = c_setup(rule%p, model%p)
    end function setup_rule

    ! Updates a model with a gradient. `guard`: a loss; if it is not finite, nothing changes, `status` is not 0, and no
    ! error is recorded. `observations`, for fx_dist_optimiser: the number of observations over which the gradient of
    ! this process is the mean; set it in all processes or in none.
    subroutine fx_update(state, model, gradient, guard, observations, status)
        type(fx_object), intent(in) :: state, model, gradient
        type(fx_object), intent(in), optional :: guard
        integer, intent(in), optional :: observations
        integer, intent(out), optional :: status
        type(fx_update_args) :: a
        a%fxi_size = c_sizeof(a)
        a%state = state%p
        a%model = model%p
        a%gradient = gradient%p
        if (present(guard)) a%guard = guard%p
        if (present(observations)) a%observations = real(observations, c_double)
        call set_status(status, c_update(a))
    end subroutine fx_update

    ! Sets the learning rate.
    subroutine fx_adjust_eta(state, eta, status)
        type(fx_object), intent(in) :: state
        real(real64), intent(in) :: eta
        integer, intent(out), optional :: status
        call set_status(status, c_adjust_eta(state%p, eta))
    end subroutine fx_adjust_eta

    ! ---- batches and training --------------------------------------------------------------------------------------
    ! Divides data (an array, or a tuple such as fx_tuple([x, y])) into batches along its last axis.
    ! partial = .false. skips a smaller last batch. `seed`: seed of the order (default: drawn from the stream of fx_seed).
    function fx_dataloader(data, batchsize, shuffle, partial, seed) result(loader)
        type(fx_object), intent(in) :: data
        integer, intent(in), optional :: batchsize
        logical, intent(in), optional :: shuffle, partial
        integer, intent(in), optional :: seed
        type(fx_object) :: loader
        type(fx_dataloader_args) :: a
        a%fxi_size = c_sizeof(a)
        a%data = data%p
        if (present(batchsize)) a%batchsize = int(batchsize, c_int64_t)
        if (present(shuffle)) a%shuffle = flag(shuffle)
        if (present(partial)) a%partial = flag(partial)
        if (present(seed)) a%seed = int(seed, c_int64_t)
        loader%p = c_dataloader(a)
    end function fx_dataloader

    ! do while (fx_next(loader, batch)): stores the next batch; .false. at the end of the pass, and after a failure.
    ! Use one variable for a whole pass: a copy of it is an error.
    logical function fx_next(loader, batch)
        type(fx_object), intent(in) :: loader
        type(fx_batch), intent(inout) :: batch
        fx_next = c_next(loader%p, batch%c)
        batch%x%p = batch%c%x
        batch%y%p = batch%c%y
        batch%items%p = batch%c%items
        batch%index = batch%c%index + 1
        batch%size = batch%c%size
    end function fx_next

    ! Ends a pass early: call it after an `exit` from the loop.
    subroutine fx_batch_end(batch)
        type(fx_batch), intent(inout) :: batch
        call c_batch_end(batch%c)
    end subroutine fx_batch_end

    ! Trains a model with a loss by name: for every batch (x, y) of the loader, an update with the gradient of
    ! loss(model(x), y). The options are those of fx_train of C (cflux/train.h): progress = .true. shows progress on
    ! the standard error, `schedule` is a text, "CosAnneal(0.01, 0, 50)", for the learning rate of each epoch.
    ! dist = .true.: all processes of fx_dist_init train one model.
    subroutine fx_train(loss, model, loader, state, epochs, progress, patience, keep_best, clip_norm, schedule, &
                        checkpoint, log, dist, status)
        character(len=*), intent(in) :: loss
        type(fx_object), intent(in) :: model, loader, state
        integer, intent(in), optional :: epochs, patience
        logical, intent(in), optional :: progress, keep_best, dist
        real(real64), intent(in), optional :: clip_norm
        character(len=*), intent(in), optional :: schedule, checkpoint, log
        integer, intent(out), optional :: status
        character(kind=c_char, len=:), allocatable, target :: checkpoint_path, log_path
        type(c_funptr), target :: formula
        type(fx_train_args) :: a
        formula = c_parse_loss(c_text(loss))
        a%fxi_size = c_sizeof(a)
        a%loss = c_funloc(loss_of_batch)
        a%user = c_loc(formula)
        a%model = model%p
        a%data = loader%p
        a%state = state%p
        if (present(epochs)) a%epochs = int(epochs, c_int64_t)
        if (present(progress)) a%progress = flag(progress)
        if (present(patience)) a%patience = int(patience, c_int64_t)
        if (present(keep_best)) a%keep_best = flag(keep_best)
        if (present(clip_norm)) a%clip_norm = clip_norm
        if (present(schedule)) a%schedule = c_parse_schedule(c_text(schedule))
        if (present(checkpoint)) then
            checkpoint_path = c_text(checkpoint)
            a%checkpoint = c_loc(checkpoint_path)
        end if
        if (present(log)) then
            log_path = c_text(log)
            a%log = c_loc(log_path)
        end if
        if (present(dist)) then
            if (dist) then
                a%dist = c_dist_backend(mpi)
                if (.not. c_associated(a%dist)) then
                    call set_status(status, c_error_status())
                    return
                end if
            end if
        end if
        call set_status(status, c_train(a))
    end subroutine fx_train

    function loss_of_batch(model, batch, user) bind(C, name="") result(loss)
        type(c_ptr), value :: model, user
        type(c_batch), intent(in) :: batch
        type(c_ptr) :: loss
        type(c_funptr), pointer :: formula
        call c_f_pointer(user, formula)
        loss = loss_of(formula, c_call(model, 1, [batch%x]), batch%y)
    end function loss_of_batch

    ! ---- files -----------------------------------------------------------------------------------------------------
    ! Saves objects under names. The extension is the format: .bson stores models completely; .safetensors, .npz and
    ! .npy store arrays.
    subroutine save_one(path, name, object, status)
        character(len=*), intent(in) :: path, name
        type(fx_object), intent(in) :: object
        integer, intent(out), optional :: status
        call save_many(path, [name], [object], status)
    end subroutine save_one

    subroutine save_many(path, names, objects, status)
        character(len=*), intent(in) :: path, names(:)
        type(fx_object), intent(in) :: objects(:)
        integer, intent(out), optional :: status
        character(kind=c_char), allocatable, target :: letters(:, :)
        type(c_ptr) :: pairs(2*max(size(names), size(objects)))
        call pairs_of(names, objects, letters, pairs)
        call set_status(status, c_save(c_text(path), size(pairs), pairs))
    end subroutine save_many

    ! Names and objects alternate in `pairs`; the names point to `letters`. If there are more names than objects, or the
    ! reverse, the missing ones are NULL, which C reports.
    subroutine pairs_of(names, objects, letters, pairs)
        character(len=*), intent(in) :: names(:)
        type(fx_object), intent(in) :: objects(:)
        character(kind=c_char), allocatable, target, intent(out) :: letters(:, :)
        type(c_ptr), intent(out) :: pairs(:)
        integer :: i, j
        allocate (letters(len(names) + 40, size(names))) ! C reads 40 bytes of a name to check that it is no object
        letters = c_null_char
        pairs = c_null_ptr
        do i = 1, size(names)
            do j = 1, len_trim(names(i))
                letters(j, i) = names(i) (j:j)
            end do
            pairs(2*i - 1) = c_loc(letters(1, i))
        end do
        do i = 1, size(objects)
            pairs(2*i) = objects(i)%p
        end do
    end subroutine pairs_of

    ! The content of a file as a named tuple (.npy: the array).
    function fx_load(path) result(object)
        character(len=*), intent(in) :: path
        type(fx_object) :: object
        object%p = c_load(c_text(path))
    end function fx_load

    ! One entry of a file, or a part of it: fx_load_key("m.bson", "model").
    function fx_load_key(path, name) result(object)
        character(len=*), intent(in) :: path, name
        type(fx_object) :: object
        object%p = c_load_key(c_text(path), c_text(name))
    end function fx_load_key

    ! Copies the values of an entry of a file into an object.
    subroutine fx_load_into(path, name, object, status)
        character(len=*), intent(in) :: path, name
        type(fx_object), intent(in) :: object
        integer, intent(out), optional :: status
        character(kind=c_char), allocatable, target :: letters(:, :)
        type(c_ptr) :: pairs(2)
        call pairs_of([name], [object], letters, pairs)
        call set_status(status, c_load_into(c_text(path), 2, pairs))
    end subroutine fx_load_into

    ! Saves a checkpoint of a training loop: model, optimiser state, random stream, and the position in the data of
    ! `loader`. `batch`: the current batch, if the loop has not ended its pass. `step` and `epoch` are counts of the
    ! program. The previous file becomes path.1; `keep` is the number of files, default: 2. In a distributed program,
    ! only one process saves.
    subroutine fx_checkpoint_save(path, model, state, loader, batch, epoch, step, keep, status)
        character(len=*), intent(in) :: path
        type(fx_object), intent(in) :: model, state
        type(fx_object), intent(in), optional :: loader
        type(fx_batch), intent(in), target, optional :: batch
        integer, intent(in), optional :: epoch, step, keep
        integer, intent(out), optional :: status
        type(fx_checkpoint_args) :: a
        a%fxi_size = c_sizeof(a)
        a%model = model%p
        a%state = state%p
        if (present(loader)) a%data = loader%p
        if (present(batch)) a%batch = c_loc(batch%c)
        if (present(epoch)) a%epoch = int(epoch, c_int64_t)
        if (present(step)) a%step = int(step, c_int64_t)
        if (present(keep)) a%keep = int(keep, c_int)
        call set_status(status, c_checkpoint_save(c_text(path), a))
    end subroutine fx_checkpoint_save

    ! Restores a checkpoint into a model, a state and a loader like the saved ones, and the random stream. `epoch` and
    ! `step` get the saved counts. After a failure nothing has changed.
    subroutine fx_checkpoint_load(path, model, state, loader, epoch, step, status)
        character(len=*), intent(in) :: path
        type(fx_object), intent(in) :: model, state
        type(fx_object), intent(in), optional :: loader
        integer, intent(inout), optional :: epoch, step
        integer, intent(out), optional :: status
        type(fx_checkpoint_args) :: a
        integer(c_int) :: result
        a%fxi_size = c_sizeof(a)
        a%model = model%p
        a%state = state%p
        if (present(loader)) a%data = loader%p
        result = c_checkpoint_load(c_text(path), a)
        if (result == 0 .and. present(epoch)) epoch = int(a%epoch)
        if (result == 0 .and. present(step)) step = int(a%step)
        call set_status(status, result)
    end subroutine fx_checkpoint_load

    ! True if the file, or the previous checkpoint (path.1), exists.
    logical function fx_checkpoint_exists(path)
        character(len=*), intent(in) :: path
        fx_checkpoint_exists = c_checkpoint_exists(c_text(path))
    end function fx_checkpoint_exists

    ! The state of a model in PyTorch's layout: call fx_save("m.safetensors", "", fx_torch_state(m)).
    function fx_torch_state(model) result(torch_state)
        type(fx_object), intent(in) :: model
        type(fx_object) :: torch_state
        torch_state%p = c_torch_state(model%p)
    end function fx_torch_state

    ! Copies a state in PyTorch's layout into a model: call fx_load_torch_state(m, fx_load("m.safetensors")).
    subroutine fx_load_torch_state(model, torch_state, status)
        type(fx_object), intent(in) :: model, torch_state
        integer, intent(out), optional :: status
        call set_status(status, c_load_torch_state(model%p, torch_state%p))
    end subroutine fx_load_torch_state

    ! Loads a model with the scaling of its inputs from a file of `cflux train --save` or `cflux convert`.
    function fx_load_predictor(path) result(predictor)
        character(len=*), intent(in) :: path
        type(fx_object) :: predictor
        predictor%p = c_load_predictor(c_text(path))
    end function fx_load_predictor

    ! The outputs of the model for observations, which are counted by the last axis of x.
    function fx_predict(predictor, x) result(y)
        type(fx_object), intent(in) :: predictor, x
        type(fx_object) :: y
        y%p = c_predict(predictor%p, x%p)
    end function fx_predict

    ! The class number, from 0, of each observation; y is from fx_predict.
    function fx_predicted_classes(predictor, y) result(classes)
        type(fx_object), intent(in) :: predictor, y
        type(fx_object) :: classes
        classes%p = c_predicted_classes(predictor%p, y%p)
    end function fx_predicted_classes

    ! The name of class number k, from 0; "" if there is none.
    function fx_class_name(predictor, k) result(name)
        type(fx_object), intent(in) :: predictor
        integer, intent(in) :: k
        character(len=:), allocatable :: name
        name = fortran_text(c_class_name(predictor%p, int(k, c_int64_t)))
    end function fx_class_name

    ! ---- devices ---------------------------------------------------------------------------------------------------
    ! Loads a backend: "CUDA", "AMDGPU", "OpenCL". If that fails, `status` is not 0, and fx_why_not says why; no error
    ! is recorded, so that the program runs on the CPU.
    subroutine fx_use(backend, status)
        character(len=*), intent(in) :: backend
        integer, intent(out), optional :: status
        call set_status(status, c_use(c_text(backend)))
    end subroutine fx_use

    function fx_why_not(backend) result(reason)
        character(len=*), intent(in) :: backend
        character(len=:), allocatable :: reason
        reason = fortran_text(c_why_not(c_text(backend)))
    end function fx_why_not

    ! A model or an array on the GPU; without a GPU the object itself.
    function fx_gpu(object) result(moved)
        type(fx_object), intent(in) :: object
        type(fx_object) :: moved
        moved%p = c_gpu(object%p)
    end function fx_gpu

    function fx_cpu(object) result(moved)
        type(fx_object), intent(in) :: object
        type(fx_object) :: moved
        moved%p = c_cpu(object%p)
    end function fx_cpu

    ! The object on a device by name, "cuda:0". If the device does not exist, records an error and uses the CPU.
    function fx_to(device, object) result(moved)
        character(len=*), intent(in) :: device
        type(fx_object), intent(in) :: object
        type(fx_object) :: moved
        moved%p = c_to(c_device_find(c_text(device)), object%p)
    end function fx_to

    ! The name of the device that holds an object: "CPU", "CUDA:0".
    function fx_device_name(object) result(name)
        type(fx_object), intent(in) :: object
        character(len=:), allocatable :: name
        name = fortran_text(c_device_name(c_device_of(object%p)))
    end function fx_device_name

    ! ---- several processes -----------------------------------------------------------------------------------------
    ! Joins the group of the processes that mpirun started: those of MPI_COMM_WORLD. If the program has not
    ! initialised MPI, the call does. For another communicator of a program that has initialised MPI, pass the address of its
    ! MPI_Comm, the handle of C, and the library, "openmpi" or "mpich". With MPICH the handles of Fortran and C are the same
    ! integer; Open MPI has the function MPI_Comm_f2c.
    subroutine fx_dist_init(communicator, library, status)
        type(c_ptr), intent(in), optional :: communicator
        character(len=*), intent(in), optional :: library
        integer, intent(out), optional :: status
        character(kind=c_char, len=:), allocatable, target :: name
        type(fx_dist_init_args) :: a
        a%fxi_size = c_sizeof(a)
        if (present(communicator)) a%communicator = communicator
        if (present(library)) then
            name = c_text(library)
            a%library = c_loc(name)
        end if
        call set_status(status, c_dist_init(a))
    end subroutine fx_dist_init

    ! The group; NULL before fx_dist_init.
    function group() result(dist)
        type(c_ptr) :: dist
        dist = c_null_ptr
        if (c_dist_initialized(mpi)) dist = c_dist_backend(mpi)
    end function group

    ! The rank of this process, from 0, and the number of processes.
    integer function fx_dist_rank()
        fx_dist_rank = int(c_dist_rank(group()))
    end function fx_dist_rank

    integer function fx_dist_total_workers()
        fx_dist_total_workers = int(c_dist_total_workers(group()))
    end function fx_dist_total_workers

    ! Copies the values of rank `root` (default: 0) to all processes. Returns the object.
    function fx_dist_synchronize(object, root) result(same)
        type(fx_object), intent(in) :: object
        integer, intent(in), optional :: root
        type(fx_object) :: same
        integer(c_int) :: from
        from = 0
        if (present(root)) from = int(root, c_int)
        same%p = c_dist_synchronize(c_dist_backend(mpi), object%p, from)
    end function fx_dist_synchronize

    function dist_optimiser_text(rule) result(wrapped)
        character(len=*), intent(in) :: rule
        type(fx_object) :: wrapped
        wrapped = dist_optimiser_rule(fx_parse_optimiser(rule))
    end function dist_optimiser_text

    function dist_optimiser_rule(rule) result(wrapped)
        type(fx_object), intent(in) :: rule
        type(fx_object) :: wrapped
        type(fx_dist_optimiser_args) :: a
        a%fxi_size = c_sizeof(a)
        a%rule = rule%p
        wrapped%p = c_dist_optimiser(c_dist_backend(mpi), a)
    end function dist_optimiser_rule
end module cflux
