// Cumulative sums: see gpu_scan.c.

//// scan
FX_USE(0, const @stored@, x)
FX_USE(1, @stored@, y)
FX_LOCAL(fx_acc0, s0, FX_GROUP);
@lanes@
const fx_int line = FX_GROUP_X * teams + team;
@walk@
fx_acc0 carry = fx_none0();
for (fx_int base = 0; base < P(1); base += lanes) {
// P(2): the sums run from the end, so elements are taken in reverse.
const fx_int n = base + lane, at = P(2) ? P(1) - 1 - n : n;
const int live = line < P(0) && n < P(1);
fx_acc0 a0 = fx_none0();
if (live) a0 = fx_take0(a0, FX_LOAD_@name@(x, o0 + at * P(3)), n);
if (lanes > 1) {
s0[own] = a0;
FX_BARRIER;
for (fx_int back = 1; back < lanes; back *= 2) {
    // In each round a lane adds the sum that ends `back` elements before its own. The first barrier
    // separates reading from writing.
    if (lane >= back) a0 = fx_join0(s0[own - back * teams], a0);
    FX_BARRIER;
    s0[own] = a0;
    FX_BARRIER;
}
}
a0 = fx_join0(carry, a0);
if (live) FX_STORE_@name@(y, o@to@ + at * P(4), fx_done0(a0));
if (lanes > 1) {
    // The last lane has the sum of all lanes.
    carry = fx_join0(carry, s0[team + (lanes - 1) * teams]);
    FX_BARRIER;
} else
    carry = a0;
}
