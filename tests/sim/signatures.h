/* signatures.h: compares the arguments that the plugins pass (gpurt_api.h) with those that a
 * vendor's header declares. Each must be passed in the same way: a pointer, or a number of the same
 * size. Device addresses, which CUDA declares as integers, are pointers in the plugins.
 */
#ifndef SIGNATURES_H
#define SIGNATURES_H

#include <type_traits>

/* Values of two enumerations. */
constexpr bool same_number(int own, int theirs)
{
    return own == theirs;
}

template <class Own, class Theirs> struct same_argument {
    static constexpr bool own_pointer = std::is_pointer<Own>::value,
                          their_pointer = std::is_pointer<Theirs>::value,
                          address = own_pointer && std::is_same<Theirs, unsigned long long>::value;
    static constexpr bool value =
        sizeof(Own) == sizeof(Theirs) && (own_pointer == their_pointer || address);
};
template <> struct same_argument<void, void> {
    static constexpr bool value = true;
};
/* What a pointer points to, if both say so. */
template <class Own, class Theirs> struct same_argument<Own *, Theirs *> {
    static constexpr bool handle = std::is_void<Own>::value || std::is_void<Theirs>::value ||
                                   std::is_class<Own>::value || std::is_class<Theirs>::value;
    template <bool, class A, class B> struct pointee {
        static constexpr bool value = true;
    };
    template <class A, class B> struct pointee<false, A, B> {
        static constexpr bool value = same_argument<typename std::remove_cv<A>::type,
                                                    typename std::remove_cv<B>::type>::value;
    };
    static constexpr bool value = pointee<handle, Own, Theirs>::value;
};
template <class Own, class Theirs> struct same_function;
template <class R, class... A, class S, class... B> struct same_function<R(A...), S(B...)> {
    template <class...> struct list {
    };
    template <class, class> struct all {
        static constexpr bool value = false; /* another number of arguments */
    };
    template <class T> struct all<list<>, T> {
        static constexpr bool value = std::is_same<T, list<>>::value;
    };
    template <class X, class... XS, class Y, class... YS>
    struct all<list<X, XS...>, list<Y, YS...>> {
        static constexpr bool value =
            same_argument<X, Y>::value && all<list<XS...>, list<YS...>>::value;
    };
    static constexpr bool value = same_argument<R, S>::value && all<list<A...>, list<B...>>::value;
};

#endif
