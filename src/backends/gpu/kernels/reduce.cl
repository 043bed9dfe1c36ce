// Reductions: see gpu_reduce.c. Some lanes of a group compute result o from the terms t.

// A lane loads several terms before it takes them. They are neighbours, loaded as vectors, if the
// terms are dense and aligned (near); else neighbouring lanes take neighbouring terms.
//// reduce
@operands@
FX_LOCAL(fx_acc0, s0, FX_GROUP);
@lanes@
const fx_int o = @group@ * teams + team;
fx_acc0 a0 = fx_none0();
if (o < P(@own@@results@)) {
@kept@
// Groups along Y take pieces of the terms.
const fx_int first = FX_GROUP_Y * P(@own@@chunk@), all = P(@own@@count@) - first;
const fx_int last = first + (all < P(@own@@chunk@) ? all : P(@own@@chunk@));
const int near = @near@;
const fx_int gap = near ? 1 : lanes;
for (fx_int base = first + lane * (near ? @elements@ : 1); base < last; base += lanes * @elements@) {
@packs@
if (near && last - base >= @elements@) {
@vector_loads@
} else {
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
// A term that does not exist is loaded as the last one, and not taken.
const fx_int t = base + e * gap < last ? base + e * gap : last - 1;
@reduced@
@loads@
}
}
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
const fx_int t = base + e * gap;
if (t < last) {
@value@
}
}
}
}
// All work-items reach the tree, also those without a result: it has barriers.
@tree@
if (lane == 0 && o < P(@own@@results@)) {
    if (P(@own@@parts@) > 1)
        partial[FX_GROUP_Y * P(@own@@results@) + o] = a0;
    else
        FX_STORE_@name@(y, o, fx_done0(a0));
}

// The same if neighbouring results are neighbours in all operands: a lane computes @elements@ of
// them, which it loads as one vector for each term, and loads several terms before it takes the
// first.
//// reduce_columns
@operands@
FX_LOCAL(fx_acc0, s0, FX_GROUP);
@lanes@
const fx_int o = (@group@ * teams + team) * @elements@;
fx_acc0 sums[@elements@];
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) sums[e] = fx_none0();
if (o < P(@own@@results@)) {
@kept@
const fx_int first = FX_GROUP_Y * P(@own@@chunk@), all = P(@own@@count@) - first;
const fx_int last = first + (all < P(@own@@chunk@) ? all : P(@own@@chunk@));
const int near = @near@;
for (fx_int base = first + lane; base < last; base += lanes * @several@) {
@packs@
if (near) {
FX_UNROLL for (fx_int c = 0; c < @several@; c++) {
const fx_int t = base + c * lanes < last ? base + c * lanes : last - 1;
@reduced@
@vector_loads@
}
} else {
FX_UNROLL for (fx_int c = 0; c < @several@; c++) {
const fx_int t = base + c * lanes < last ? base + c * lanes : last - 1;
@reduced_again@
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
@loads@
}
}
}
FX_UNROLL for (fx_int c = 0; c < @several@; c++) {
const fx_int t = base + c * lanes;
if (t < last) {
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
fx_acc0 a0 = sums[e];
@value@
sums[e] = a0;
}
}
}
}
}
FX_UNROLL for (fx_int e = 0; e < @elements@; e++) {
fx_acc0 a0 = sums[e];
@tree@
if (lane == 0 && o < P(@own@@results@)) {
    if (P(@own@@parts@) > 1)
        partial[FX_GROUP_Y * P(@own@@results@) + o + e] = a0;
    else
        FX_STORE_@name@(y, o + e, fx_done0(a0));
}
}

// Joins the pieces of every result.
//// reduce_finish
FX_USE(0, const fx_acc0, partial)
FX_USE(1, @stored@, y)
FX_LOCAL(fx_acc0, s0, FX_GROUP);
@lanes@
const fx_int o = FX_GROUP_X * teams + team;
fx_acc0 a0 = fx_none0();
if (o < P(@own@@results@)) {
for (fx_int t = lane; t < P(@own@@count@); t += lanes)
    a0 = fx_join0(a0, partial[t * P(@own@@results@) + o]);
}
@tree@
if (lane == 0 && o < P(@own@@results@)) FX_STORE_@name@(y, o, fx_done0(a0));

// Computes one of several reductions of a launch: reduction g, whose first group is parameter g.
// Its other parameters begin at parameter `from`, after those of the earlier reductions; the text
// of a reduction follows, with `from + ` for @own@. In a kernel of one reduction, @own@ is empty.
//// reductions
const fx_int g = 0@later_reductions@;
const fx_int from = @batch@ + g * @params@, group = FX_GROUP_X - P(g);
