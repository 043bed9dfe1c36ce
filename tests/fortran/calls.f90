! calls.f90: calls every procedure of the module cflux, and compares the results with those of Fortran's intrinsic
! functions and with formulas. check_fortran.py compiles and runs it, in a folder of its own, and checks that no public name is missing.
program calls
    use cflux
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64, error_unit
    implicit none

    ! The counters of the library (base.h): live_bytes is the last but one.
    type, bind(C) :: counters
        integer(c_int64_t) :: before(19), live_bytes, peak_bytes
    end type counters
    interface
        function fx_stats() bind(C) result(now)
            import :: counters
            type(counters) :: now
        end function fx_stats
    end interface

    integer :: checks = 0, scope

    scope = fx_begin_scope()
    call arrays()
    call ranks()
    call strided()
    call operations()
    call reductions()
    call shapes()
    call errors()
    call scopes()
    call models()
    call derivatives()
    call training()
    call whole_training()
    call checkpoints()
    call files()
    call devices()
    call processes()
    call fx_end(scope)
    call leaks()
    write (*, "(i0, a)") checks, " checks"
    call fx_check()

contains

    subroutine check(what, ok)
        character(len=*), intent(in) :: what
        logical, intent(in) :: ok
        checks = checks + 1
        if (ok) return
        write (error_unit, "(4a)") "wrong: ", what, "; ", fx_error_text()
        error stop 1
    end subroutine check

    ! Compares an array of rank 1 to 3, by its elements in their order.
    subroutine expect(what, x, expected, tolerance)
        character(len=*), intent(in) :: what
        type(fx_object), intent(in) :: x
        real(real64), intent(in) :: expected(:)
        real(real64), intent(in), optional :: tolerance
        real(real64) :: got(size(expected)), most
        integer :: status
        most = 1e-6_real64
        if (present(tolerance)) most = tolerance
        got = huge(got)
        call fx_read_into(x, got, status)
        call check(what//": read", status == 0)
        call check(what, all(abs(got - expected) <= most*max(1.0_real64, abs(expected))))
    end subroutine expect

    function near(a, b) result(yes)
        real(real64), intent(in) :: a, b
        logical :: yes
        yes = abs(a - b) <= 1e-6_real64*max(1.0_real64, abs(b))
    end function near

    subroutine arrays()
        type(fx_object) :: x
        real(real32) :: a(3, 4), back(3, 4)
        integer(int64) :: whole(12)
        integer :: i
        a = reshape([(real(i*i, real32), i=1, 12)], [3, 4])
        x = fx_from(a)
        call check("shape", all(fx_shape(x) == [3, 4]))
        call check("sizes", fx_size(x, 1) == 3 .and. fx_size(x, 2) == 4 .and. fx_size(x, 3) == 1)
        back = -1
        call fx_read_into(x, back)
        call check("copy", all(back == a))
        call fx_read_into(x, whole)
        call check("as integers", all(whole == int(reshape(a, [12]), int64)))
        call check("text", fx_show_text(fx_from([1.0, 2.5])) == "2-element Vector{Float32}:"//new_line("a")//" 1.0"// &
                   new_line("a")//" 2.5")
        call check("Float64", index(fx_show_text(fx_from([1.0_real64])), "Float64") > 0)
        call check("Int32", index(fx_show_text(fx_from([1_int32])), "Int32") > 0)
        call check("Int64", index(fx_show_text(fx_from(reshape([1_int64], [1, 1]))), "Int64") > 0)
        call check("Float32", index(fx_show_text(fx_f32(fx_from([1.0_real64]))), "Float32") > 0)
        call check("to Float64", index(fx_show_text(fx_f64(fx_from([1.0]))), "Float64") > 0)
        call expect("full", fx_full(2.5, [2, 2]), [2.5_real64, 2.5_real64, 2.5_real64, 2.5_real64])
        call expect("full of an integer", fx_full(3, [1]), [3.0_real64])
        call expect("full of real64", fx_full(0.5_real64, [1]), [0.5_real64])
        call expect("full of int64", fx_full(2_int64**33, [1]), [2.0_real64**33])
        x = fx_full("text", [1])
        call check("full of a text", index(fx_error_text(), "FX_STATUS_ARGUMENT") > 0)
        call check("item", near(fx_item(fx_full(7, [1, 1])), 7.0_real64))
        call fx_seed(3)
        x = fx_randn([2, 3])
        call fx_eval(x)
        call fx_seed(3_int64)
        call check("the same numbers after fx_seed", near(fx_item(fx_maximum(fx_abs(fx_sub(x, fx_randn([2, 3]))))), 0.0_real64))
        call check("no elements", size(fx_shape(fx_from(a(:, 1:0)))) == 2 .and. fx_size(fx_from(a(:, 1:0)), 2) == 0)
        call fx_show(fx_from([1_int32]))
    end subroutine arrays

    ! Every specific procedure of fx_from and fx_read_into: the sizes, and elements that differ.
    subroutine ranks()
        real(real32) :: a1(6), a2(2, 3), a3(2, 3, 2), a4(2, 1, 3, 2), b1(6), b2(2, 3), b3(2, 3, 2), b4(2, 1, 3, 2)
        real(real64) :: c1(6), c2(2, 3), c3(2, 3, 2), c4(2, 1, 3, 2), d1(6), d2(2, 3), d3(2, 3, 2), d4(2, 1, 3, 2)
        integer(int32) :: e1(6), e2(2, 3), f1(6), f2(2, 3)
        integer(int64) :: g1(6), g2(2, 3), h1(6), h2(2, 3)
        integer :: i
        a1 = [(real(i, real32)/7, i=1, 6)]
        a2 = reshape(a1, [2, 3])
        a3 = reshape([a1, -a1], [2, 3, 2])
        a4 = reshape([a1, -a1], [2, 1, 3, 2])
        c1 = [(real(i, real64)/7, i=1, 6)]
        c2 = reshape(c1, [2, 3])
        c3 = reshape([c1, -c1], [2, 3, 2])
        c4 = reshape([c1, -c1], [2, 1, 3, 2])
        e1 = [(i - 3, i=1, 6)]
        e2 = reshape(e1, [2, 3])
        g1 = 2_int64**40 + e1
        g2 = reshape(g1, [2, 3])
        call fx_read_into(fx_from(a1), b1)
        call fx_read_into(fx_from(a2), b2)
        call fx_read_into(fx_from(a3), b3)
        call fx_read_into(fx_from(a4), b4)
        call check("real32", all(a1 == b1) .and. all(a2 == b2) .and. all(a3 == b3) .and. all(a4 == b4))
        call fx_read_into(fx_from(c1), d1)
        call fx_read_into(fx_from(c2), d2)
        call fx_read_into(fx_from(c3), d3)
        call fx_read_into(fx_from(c4), d4)
        call check("real64", all(c1 == d1) .and. all(c2 == d2) .and. all(c3 == d3) .and. all(c4 == d4))
        call fx_read_into(fx_from(e1), f1)
        call fx_read_into(fx_from(e2), f2)
        call check("int32", all(e1 == f1) .and. all(e2 == f2))
        call fx_read_into(fx_from(g1), h1)
        call fx_read_into(fx_from(g2), h2)
        call check("int64", all(g1 == h1) .and. all(g2 == h2))
        call check("ranks", all(fx_shape(fx_from(a3)) == [2, 3, 2]) .and. all(fx_shape(fx_from(c4)) == [2, 1, 3, 2]))
        call check("shapes of integers", all(fx_shape(fx_from(e2)) == [2, 3]) .and. all(fx_shape(fx_from(g1)) == [6]))
        call fx_read_into(fx_from(c1), b2)
        call check("another type and rank", all(b2 == real(c2, real32)))
    end subroutine ranks

    ! Sections with a stride are copied.
    subroutine strided()
        real(real32) :: a(6, 4), back(6, 4)
        integer :: i
        a = reshape([(real(i, real32), i=1, 24)], [6, 4])
        call expect("every second row", fx_from(a(1:6:2, 2:4)), real(reshape(a(1:6:2, 2:4), [9]), real64))
        call expect("backwards", fx_from(a(6:1:-1, 1)), real(a(6:1:-1, 1), real64))
        back = 0
        call fx_read_into(fx_from(a(1:6:2, :)), back(2:6:2, :))
        call check("into a section", all(back(2:6:2, :) == a(1:6:2, :)) .and. all(back(1:6:2, :) == 0))
    end subroutine strided

    subroutine operations()
        real(real64) :: a(4), b(4)
        type(fx_object) :: x, y
        a = [0.5_real64, 1.0_real64, 2.0_real64, 4.0_real64]
        b = [3.0_real64, -1.0_real64, 0.25_real64, 4.0_real64]
        x = fx_from(a)
        y = fx_from(b)
        call expect("add", fx_add(x, y), a + b)
        call expect("sub", fx_sub(x, y), a - b)
        call expect("mul", fx_mul(x, y), a*b)
        call expect("div", fx_div(x, y), a/b)
        call expect("pow", fx_pow(x, y), a**b)
        call expect("a real number before", fx_sub(1.5, x), 1.5_real64 - a)
        call expect("a real64 number", fx_mul(x, 0.1_real64), a*0.1_real64, 1e-15_real64)
        call expect("an integer", fx_pow(x, 3), a**3)
        call expect("an integer of 64 bits", fx_div(1_int64, x), 1/a)
        call expect("max", fx_max(x, y), max(a, b))
        call expect("eq", fx_eq(x, y), merge(1.0_real64, 0.0_real64, a == b))
        call expect("abs", fx_abs(y), abs(b))
        call expect("square", fx_square(y), b**2)
        call expect("sqrt", fx_sqrt(x), sqrt(a))
        call expect("exp", fx_exp(x), exp(a))
        call expect("log", fx_log(x), log(a))
        call expect("tanh", fx_tanh(y), tanh(b))
        x = fx_add(x, "text")
        call check("a text is no array", .not. fx_ok())
        call check("the message of NULL", index(fx_error_text(), "FX_STATUS_ARGUMENT") > 0)
    end subroutine operations

    subroutine reductions()
        real(real64) :: a(2, 3)
        type(fx_object) :: x
        a = reshape([1.0_real64, -2.0_real64, 3.0_real64, 5.0_real64, 0.5_real64, 4.0_real64], [2, 3])
        x = fx_from(a)
        call expect("sum", fx_sum(x), [sum(a)])
        call expect("sum of columns", fx_sum(x, dim=1), sum(a, dim=1))
        call expect("sum of rows", fx_sum(x, 2), sum(a, dim=2))
        call expect("mean", fx_mean(x, 2), sum(a, dim=2)/3)
        call expect("maximum", fx_maximum(x, 1), maxval(a, dim=1))
        call check("without the axis", size(fx_shape(fx_sum(x, 1))) == 1)
        call check("with the axis", all(fx_shape(fx_sum(x, 1, keep=.true.)) == [1, 3]))
        call check("0-d", size(fx_shape(fx_mean(x))) == 0)
        call expect("softmax", fx_softmax(x), reshape(exp(a)/spread(sum(exp(a), 1), 1, 2), [6]))
        call expect("softmax of rows", fx_softmax(x, 2), reshape(exp(a)/spread(sum(exp(a), 2), 2, 3), [6]))
        x = fx_sum(x, 3)
        call check("an axis that is missing", index(fx_error_text(), "FX_STATUS_ARGUMENT") > 0)
    end subroutine reductions

    subroutine shapes()
        real(real64) :: a(2, 3), b(3, 2)
        type(fx_object) :: x, y
        a = reshape([1.0_real64, -2.0_real64, 3.0_real64, 5.0_real64, 0.5_real64, 4.0_real64], [2, 3])
        b = reshape([2.0_real64, 7.0_real64, 1.0_real64, 0.0_real64, 3.0_real64, -1.0_real64], [3, 2])
        x = fx_from(a)
        y = fx_from(b)
        call expect("matmul", fx_matmul(x, y), reshape(matmul(a, b), [4]))
        call expect("transpose", fx_transpose(x), reshape(transpose(a), [6]))
        call check("reshape", all(fx_shape(fx_reshape(x, [3, -1])) == [3, 2]))
        call expect("the order stays", fx_reshape(x, [6]), reshape(a, [6]))
        call expect("slice", fx_slice(x, 2, 2, 3), reshape(a(:, 2:3), [4]))
        call expect("slice of rows", fx_slice(x, 1, 2, 2), a(2, :))
        call expect("concat", fx_concat(2, [x, fx_transpose(y)]), [reshape(a, [6]), reshape(transpose(b), [6])])
        call check("sizes of concat", all(fx_shape(fx_concat(1, [x, x])) == [4, 3]))
        call expect("one-hot", fx_onehotbatch(fx_from([2_int32, 0_int32]), 3), real([0, 0, 1, 1, 0, 0], real64))
        call expect("one-cold", fx_onecold(fx_from(a)), [0.0_real64, 1.0_real64, 1.0_real64])
    end subroutine shapes

    subroutine errors()
        type(fx_object) :: x
        real(real32) :: a(3) = 4
        character(len=:), allocatable :: text
        integer :: status, inner
        call check("nothing failed", fx_ok())
        call check("no message", fx_error_text() == "")
        inner = fx_begin_scope(line=77)
        x = fx_matmul(fx_full(1, [2, 5]), fx_full(1, [4, 3]))
        call check("recorded", .not. fx_ok())
        x = fx_sum(fx_tanh(x))
        call fx_read_into(x, a, status)
        call check("a status", status == 2)
        call check("unchanged", all(a == 4.0))
        call fx_end(inner)
        text = fx_error_text()
        call check("the first message", text == "matmul: inner sizes differ: A is 2×5, B is 4×3 (FX_STATUS_SHAPE, "// &
                   "in the scope at line 77)")
        call check("taken", fx_ok())
        call fx_read_into(fx_full(1, [2]), a, status)
        call check("another number of elements", status == 2 .and. all(a == 4.0) .and. len(fx_error_text()) > 0)
        x = fx_parse_model("Chain(Dense(2 => 3, tanh), Dense(4 => 1))  ")
        x = fx_parse_model("Dense(2 => )")
        call check("a model with an error", index(fx_error_text(), "column 12") > 0)
    end subroutine errors

    subroutine scopes()
        type(fx_object) :: kept, held
        integer :: outer, inner
        outer = fx_begin_scope()
        inner = fx_begin_scope()
        kept = fx_keep(fx_full(5, [1]))
        held = fx_retain(fx_full(6, [1]))
        call fx_end(inner)
        call check("kept", near(fx_item(kept), 5.0_real64))
        inner = fx_begin_test() ! not closed: the outer scope does it
        call fx_end(outer)
        call check("held", near(fx_item(held), 6.0_real64))
        call fx_release(held)
        call check("released", .not. c_associated(held%p))
    end subroutine scopes

    subroutine models()
        type(fx_object) :: model, layer, x, two
        real(real64) :: w(6), b(3), in(2), hidden(3)
        model = fx_parse_model("Chain(Dense(2 => 3, tanh), Dense(3 => 1))")
        call check("parameters", fx_parameter_count(model) == 13)
        call check("printed", index(fx_show_text(model), "Dense(2 => 3, tanh)") > 0)
        layer = fx_child(model, 1)
        call fx_read_into(fx_child_named(layer, "weight"), w)
        call fx_read_into(fx_child_named(layer, "bias"), b)
        in = [0.3_real64, -0.7_real64]
        hidden = tanh(matmul(reshape(w, [3, 2]), in) + b)
        x = fx_f32(fx_from(reshape(in, [2, 1])))
        call expect("the first layer", fx_call(layer, x), hidden)
        two = fx_parse_model("Bilinear((2, 2) => 1)")
        call check("two inputs", all(fx_shape(fx_call(two, x, x)) == [1, 1]))
        x = fx_tuple([x, model])
        call check("a tuple", c_associated(fx_child_p(x, 2), model%p))
    end subroutine models

    function fx_child_p(object, i) result(p)
        type(fx_object), intent(in) :: object
        integer, intent(in) :: i
        type(c_ptr) :: p
        type(fx_object) :: child
        child = fx_child(object, i)
        p = child%p
    end function fx_child_p

    subroutine derivatives()
        type(fx_object) :: x, y
        real(real64) :: a(3), gy(3)
        a = [0.2_real64, 1.0_real64, -2.0_real64]
        gy = [1.0_real64, 10.0_real64, 100.0_real64]
        x = fx_from(a)
        y = fx_tanh(x)
        call expect("gradient", fx_gradient(fx_sum(y), x), 1 - tanh(a)**2)
        call expect("pullback", fx_pullback(y, fx_from(gy), x), gy*(1 - tanh(a)**2))
        call check("Jacobian", all(fx_shape(fx_jacobian(y, x)) == [3, 3]))
        call expect("mse", fx_mse(x, fx_from(gy)), [sum((a - gy)**2)/3])
        call expect("mae", fx_loss("mae", x, fx_from(gy)), [sum(abs(a - gy))/3])
        y = fx_loss("mistake", x, x)
        call check("a loss that does not exist", index(fx_error_text(), "mistake") > 0)
    end subroutine derivatives

    ! Linear regression by descent, against the same steps in Fortran.
    subroutine training()
        type(fx_object) :: model, state, loader, loss
        type(fx_batch) :: batch
        real(real32) :: x(1, 8), y(1, 8)
        real(real64) :: w, e(8), grad, eta, seen
        integer :: step, i, inner, status
        x(1, :) = [(real(i, real32)/8, i=1, 8)]
        y = 3*x
        model = fx_parse_model("Dense(1 => 1; bias=false)")
        w = fx_item(fx_child_named(model, "weight"))
        state = fx_setup("Descent(0.5)", model)
        eta = 0.5_real64
        do step = 1, 6
            if (step == 4) then
                eta = 0.25_real64
                call fx_adjust_eta(state, eta)
            end if
            inner = fx_begin_step()
            loss = fx_mse(fx_call(model, fx_from(x)), fx_from(y))
            call fx_update(state, model, fx_gradient(loss, model), guard=loss, status=status)
            call fx_end(inner)
            e = (w - 3)*x(1, :)
            grad = 2*sum(e*x(1, :))/8
            w = w - eta*grad
            call check("update", status == 0)
            call check("the weight", near(fx_item(fx_child_named(model, "weight")), w))
        end do
        ! Batches in order: 3, 3 and 2 observations.
        loader = fx_dataloader(fx_tuple([fx_from(x), fx_from(y)]), batchsize=3)
        seen = 0
        step = 0
        do while (fx_next(loader, batch))
            inner = fx_begin_record()
            step = step + 1
            call check("number of the batch", batch%index == step .and. batch%size == merge(2, 3, step == 3))
            call check("size of the batch", all(fx_shape(batch%x) == [1, int(batch%size)]))
            seen = seen + fx_item(fx_sum(batch%y))
            loss = fx_mse(fx_call(model, batch%x), batch%y)
            call fx_update(state, model, fx_gradient(loss, model))
            call fx_end(inner)
        end do
        call check("three batches", step == 3 .and. near(seen, real(sum(y), real64)))
        loader = fx_dataloader(fx_from(x), batchsize=3, shuffle=.true., partial=.false., seed=4)
        step = 0
        do while (fx_next(loader, batch))
            step = step + 1
            exit
        end do
        call fx_batch_end(batch)
        do while (fx_next(loader, batch))
            step = step + 1
        end do
        call check("a pass that ended early, and a whole one", step == 3)
    end subroutine training

    subroutine whole_training()
        type(fx_object) :: model, state, loader
        real(real32) :: x(1, 32)
        real(real64) :: before, after
        integer :: i, status, inner
        logical :: there
        call fx_seed(1)
        x(1, :) = [(real(i - 16, real32)/16, i=1, 32)]
        model = fx_parse_model("Chain(Dense(1 => 8, tanh), Dense(8 => 1))")
        state = fx_setup(fx_parse_optimiser("Adam(0.02)"), model)
        loader = fx_dataloader(fx_tuple([fx_from(x), fx_from(x**2)]), batchsize=8, shuffle=.true.)
        inner = fx_begin_test()
        before = fx_item(fx_mse(fx_call(model, fx_from(x)), fx_from(x**2)))
        call fx_end(inner)
        call fx_train("mse", model, loader, state, epochs=150, clip_norm=10.0_real64, schedule="CosAnneal(0.05, 0, 150)", &
                      log="run.jsonl", keep_best=.true., patience=150, status=status)
        call check("train", status == 0)
        after = fx_item(fx_mse(fx_call(model, fx_from(x)), fx_from(x**2)))
        call check("learned", after < 0.002_real64 .and. after < before/10)
        inquire (file="run.jsonl", exist=there)
        call check("log", there)
        call fx_train("mse", model, loader, state, epochs=2, checkpoint="run.safetensors")
        inquire (file="run.safetensors", exist=there)
        call check("checkpoint", there)
        call fx_train("mistake", model, loader, state, status=status)
        call check("a loss that does not exist", status /= 0 .and. index(fx_error_text(), "mistake") > 0)
        call fx_train("mse", fx_full(1, [1]), loader, state, progress=.false., dist=.false., status=status)
        call check("no model", status /= 0 .and. len(fx_error_text()) > 0)
    end subroutine whole_training

    ! A loop that is interrupted in the middle of a pass, and continued by new objects, does the same as one that is not.
    subroutine checkpoints()
        type(fx_object) :: model, state, loader
        integer :: step, epoch, status
        real(real64) :: whole
        call check("no checkpoint yet", .not. fx_checkpoint_exists("loop.safetensors"))
        step = 5
        call fx_checkpoint_load("loop.safetensors", fx_parse_model("Dense(1 => 1)"), model, step=step, status=status)
        call check("a missing file", status /= 0 .and. step == 5 .and. index(fx_error_text(), "loop.safetensors") > 0)
        call objects(1, model, state, loader)
        call batches(model, state, loader, 6, 0)
        whole = fx_item(fx_sum(fx_child_named(model, "weight")))
        call objects(1, model, state, loader)
        call batches(model, state, loader, 2, 2)
        call objects(2, model, state, loader)
        epoch = 0
        call fx_checkpoint_load("loop.safetensors", model, state, loader, epoch=epoch, step=step, status=status)
        call check("load a checkpoint", status == 0 .and. step == 2 .and. epoch == 1)
        call batches(model, state, loader, 4, 0)
        call check("the same weight", near(fx_item(fx_sum(fx_child_named(model, "weight"))), whole))
        call fx_checkpoint_save("loop.safetensors", model, state, keep=1)
        call fx_checkpoint_save("no/folder/loop.safetensors", model, state, status=status)
        call check("no such folder", status /= 0 .and. index(fx_error_text(), "no/folder") > 0)
        call check("a checkpoint", fx_checkpoint_exists("loop.safetensors"))
    end subroutine checkpoints

    subroutine objects(seed, model, state, loader)
        integer, intent(in) :: seed
        type(fx_object), intent(out) :: model, state, loader
        real(real32) :: x(1, 8)
        integer :: i
        x(1, :) = [(real(i, real32)/8, i=1, 8)]
        call fx_seed(seed)
        model = fx_parse_model("Dense(1 => 1)")
        state = fx_setup("Adam(0.1)", model)
        loader = fx_dataloader(fx_tuple([fx_from(x), fx_from(x**2)]), batchsize=3, shuffle=.true., seed=seed)
    end subroutine objects

    ! Updates with the next n batches; after the one with the number `save` it saves a checkpoint and returns.
    subroutine batches(model, state, loader, n, save)
        type(fx_object), intent(in) :: model, state, loader
        integer, intent(in) :: n, save
        type(fx_batch) :: batch
        integer :: done, inner
        done = 0
        do while (done < n)
            do while (fx_next(loader, batch))
                inner = fx_begin_step()
                call fx_update(state, model, fx_gradient(fx_mse(fx_call(model, batch%x), batch%y), model))
                call fx_end(inner)
                done = done + 1
                if (done == save) then
                    call fx_checkpoint_save("loop.safetensors", model, state, loader, batch, epoch=1, step=done)
                    call fx_batch_end(batch)
                    return
                end if
            end do
        end do
    end subroutine batches

    subroutine files()
        type(fx_object) :: model, other, x, y, file
        integer :: status
        x = fx_from(reshape([0.1, 0.2, 0.3, 0.4], [2, 2]))
        model = fx_parse_model("Chain(Dense(2 => 3, relu), Dense(3 => 2))")
        y = fx_call(model, x)
        call fx_save("model.bson ", "model", model, status)
        call check("save", status == 0)
        other = fx_load_key("model.bson", "model")
        call check("load a model", near(fx_item(fx_maximum(fx_abs(fx_sub(fx_call(other, x), y)))), 0.0_real64))
        call fx_save("pair.safetensors", [character(len=5) :: "model", "x"], [model, x])
        call fx_save("two.safetensors", ["a", "b"], [x], status)
        call check("more names than objects", status /= 0 .and. index(fx_error_text(), "FX_STATUS_ARGUMENT") > 0)
        call fx_save("two.safetensors", ["a"], [x, y], status)
        call check("more objects than names", status /= 0 .and. index(fx_error_text(), "FX_STATUS_ARGUMENT") > 0)
        file = fx_load("pair.safetensors")
        call check("an array of a file", near(fx_item(fx_sum(fx_child_named(file, "x"))), 1.0_real64))
        other = fx_parse_model("Chain(Dense(2 => 3, relu), Dense(3 => 2))")
        call fx_load_into("pair.safetensors", "model", other, status)
        call check("load into a model", status == 0 .and. &
                   near(fx_item(fx_maximum(fx_abs(fx_sub(fx_call(other, x), y)))), 0.0_real64))
        call fx_load_into("missing.safetensors", "model", other, status)
        call check("a file that is missing", status == 7 .and. index(fx_error_text(), "missing.safetensors") > 0)
        call predictors(x, y)
        call fx_check()
        call torch(other, x)
    end subroutine files

    subroutine predictors(x, y)
        type(fx_object), intent(in) :: x, y
        type(fx_object) :: predictor
        predictor = fx_load_predictor("model.bson")
        call check("predict", near(fx_item(fx_maximum(fx_abs(fx_sub(fx_predict(predictor, x), y)))), 0.0_real64))
        call check("no classes", fx_class_name(predictor, 0) == "" .and. fx_ok())
        predictor = fx_predicted_classes(predictor, y)
        call check("no classes to predict", index(fx_error_text(), "FX_STATUS_ARGUMENT") > 0)
    end subroutine predictors

    ! torch.safetensors is written by check_fortran.py: a Linear layer with the weight [[1, 2], [3, 4], [5, 6]] of
    ! PyTorch and the bias [0.5, 0.25, 0].
    subroutine torch(unlike, x)
        type(fx_object), intent(in) :: unlike, x
        type(fx_object) :: model
        real(real64) :: w(3, 2)
        integer :: status
        w = transpose(reshape([1.0_real64, 2.0_real64, 3.0_real64, 4.0_real64, 5.0_real64, 6.0_real64], [2, 3]))
        model = fx_parse_model("Chain(Dense(2 => 3))")
        call fx_load_torch_state(model, fx_load("torch.safetensors"), status)
        call check("a state of PyTorch", status == 0)
        call expect("its layer", fx_call(model, x), reshape(matmul(w, &
                    reshape([0.1_real64, 0.2_real64, 0.3_real64, 0.4_real64], [2, 2])) + &
                    spread([0.5_real64, 0.25_real64, 0.0_real64], 2, 2), [6]))
        call fx_save("again.safetensors", "", fx_torch_state(model))
        call expect("saved for PyTorch", fx_child_named(fx_load("again.safetensors"), "0.weight"), &
                    [1.0_real64, 2.0_real64, 3.0_real64, 4.0_real64, 5.0_real64, 6.0_real64])
        call fx_load_torch_state(unlike, fx_load("torch.safetensors"), status)
        call check("the state of another model", status /= 0 .and. len(fx_error_text()) > 0)
    end subroutine torch

    subroutine devices()
        type(fx_object) :: x
        integer :: status
        x = fx_from([1.0, 2.0])
        call fx_use("Nothing", status)
        call check("a backend that does not exist", status /= 0 .and. fx_ok() .and. len(fx_why_not("Nothing")) > 0)
        call check("the device", fx_device_name(x) == "CPU")
        call check("to the CPU", fx_device_name(fx_to("cpu", fx_cpu(fx_gpu(x)))) == "CPU" .and. fx_ok())
        call fx_set_num_threads(1, status)
        call check("threads", status == 0)
        call check("version", index(fx_version(), ".") > 0)
    end subroutine devices

    ! One process: the functions work without MPI. tests/fortran/processes.f90 has two.
    subroutine processes()
        type(fx_object) :: model, state, loss
        integer :: status
        call check("alone", fx_dist_rank() == 0 .and. fx_dist_total_workers() == 1 .and. fx_ok())
        call train_without_group()
        call fx_dist_init(status=status)
        call check("init", status == 0)
        call check("a group of one", fx_dist_rank() == 0 .and. fx_dist_total_workers() == 1)
        model = fx_dist_synchronize(fx_parse_model("Dense(1 => 1)"))
        state = fx_setup(fx_dist_optimiser("Descent(0.1)"), model)
        state = fx_setup(fx_dist_optimiser(fx_parse_optimiser("Adam()")), model)
        loss = fx_mse(fx_call(model, fx_full(1, [1, 2])), fx_full(0, [1, 2]))
        call fx_update(state, model, fx_gradient(loss, model), observations=2, status=status)
        call check("update", status == 0)
    end subroutine processes

    ! Training with dist=.true. before fx_dist_init trains nothing: the processes would train models of their own.
    subroutine train_without_group()
        type(fx_object) :: model, loader
        integer :: status
        real :: before(1, 1), after(1, 1)
        model = fx_parse_model("Dense(1 => 1; bias=false)")
        loader = fx_dataloader(fx_tuple([fx_full(1, [1, 2]), fx_full(5, [1, 2])]))
        call fx_read_into(fx_child_named(model, "weight"), before)
        call fx_train("mse", model, loader, fx_setup("Descent(0.1)", model), dist=.true., status=status)
        call check("no group", status /= 0 .and. index(fx_error_text(), "fx_dist_init") > 0)
        call fx_read_into(fx_child_named(model, "weight"), after)
        call check("no training", before(1, 1) == after(1, 1))
    end subroutine train_without_group

    ! A time step leaves no memory of arrays behind.
    subroutine leaks()
        type(fx_object) :: model, y
        type(counters) :: now
        real(real32) :: grid(2, 50)
        integer(int64) :: bytes
        integer :: step, inner
        model = fx_retain(fx_parse_model("Chain(Dense(2 => 16, tanh), Dense(16 => 2))"))
        grid = 0.5
        bytes = 0
        do step = 1, 20
            inner = fx_begin_test()
            y = fx_call(model, fx_from(grid))
            call fx_read_into(y, grid)
            call fx_end(inner)
            now = fx_stats()
            if (step == 10) bytes = now%live_bytes
        end do
        call check("no memory is left behind", now%live_bytes == bytes .and. bytes > 0)
        call fx_release(model)
    end subroutine leaks
end program calls
