// Reductions: see gpu_reduce.c. Some lanes of a group compute result o from the terms t.

//// reduce
@operands@
FX_USE(@nin@, @stored@, y)
FX_USE(@partial@, fx_acc0, partial)
FX_LOCAL(fx_acc0, s0, FX_GROUP);
@lanes@
const fx_int o = FX_GROUP_X * slots + slot;
fx_acc0 a0 = fx_none0();
if (o < P(@results@)) {
@kept@
// Groups along Y take pieces of the terms.
const fx_int first = FX_GROUP_Y * P(@chunk@), all = P(@count@) - first;
const fx_int last = first + (all < P(@chunk@) ? all : P(@chunk@));
// Neighbouring lanes take neighbouring terms, so rows are read in whole lines of memory.
for (fx_int t = first + lane; t < last; t += lanes) {
@reduced@
@value@
}
}
// All work-items reach the tree, also those without a result: it has barriers.
@tree@
if (lane == 0 && o < P(@results@)) {
    if (P(@parts@) > 1)
        partial[FX_GROUP_Y * P(@results@) + o] = s0[slot];
    else
        FX_STORE_@name@(y, o, fx_done0(s0[slot]));
}

// Joins the pieces of every result.
//// reduce_finish
FX_USE(0, const fx_acc0, partial)
FX_USE(1, @stored@, y)
FX_LOCAL(fx_acc0, s0, FX_GROUP);
@lanes@
const fx_int o = FX_GROUP_X * slots + slot;
fx_acc0 a0 = fx_none0();
if (o < P(@results@)) {
for (fx_int t = lane; t < P(@count@); t += lanes)
    a0 = fx_join0(a0, partial[t * P(@results@) + o]);
}
@tree@
if (lane == 0 && o < P(@results@)) FX_STORE_@name@(y, o, fx_done0(s0[slot]));
