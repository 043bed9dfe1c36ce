#!/usr/bin/env python3
"""docs/flux-names.md has every exported or public name of Flux and of the packages that it re-exports.

The page ends with a table for each package: names in Julia, names in C, a remark. This script fails if
  * a name of NAMES is in no row of its package's table, or twice;
  * a name in the column C is not declared in a public header;
  * a row has neither a name in C nor a remark that gives the reason;
  * a row says "not yet" for a name that is not in NOT_YET, or a name in NOT_YET has another row, or the headers declare
    it by now: --update writes it into the table and removes it from NOT_YET.
The names are those of Flux 0.16.11, NNlib 0.9, Optimisers 0.4, MLUtils 0.4.10, MLDataDevices 1, OneHotArrays 0.2,
Functors 0.5 and ParameterSchedulers 0.4.
Usage: check_flux_names.py [--update] [root]
"""
import os
import re
import sys

NAMES = {
    "Flux":
        "Chain Dense Scale Bilinear Embedding EmbeddingBag Maxout SkipConnection Parallel PairwiseFusion "
        "RNNCell LSTMCell GRUCell GRUv3Cell RNN LSTM GRU GRUv3 Recurrence initialstates SamePad Conv CrossCor "
        "ConvTranspose DepthwiseConv AdaptiveMaxPool AdaptiveMeanPool GlobalMaxPool GlobalMeanPool MaxPool "
        "MeanPool Dropout AlphaDropout LayerNorm BatchNorm InstanceNorm GroupNorm WeightNorm "
        "remove_weight_norms MultiHeadAttention Upsample PixelShuffle fmap cpu gpu f16 f32 f64 bf16 BFloat16 "
        "rand32 randn32 zeros32 ones32 testmode! trainmode! gradient withgradient pullback jacobian "
        "withjacobian hessian diaghessian @autosize outputsize activations modules get_device MPIBackend "
        "NCCLBackend DistributedUtils ADTypes AutoZygote AutoEnzyme AutoMooncake AutoFiniteDifferences Losses "
        "Train train! trainstep! trainstep_withgradient! state loadmodel! create_bias @layer @functor "
        "normalise flatten rng_from_array default_rng_value nfan onehot onehotbatch onecold setup update! "
        "freeze! thaw! adjust! trainable trainables params DataLoader throttle patience early_stopping "
        "plateau glorot_uniform glorot_normal kaiming_uniform kaiming_normal truncated_normal lecun_normal "
        "orthogonal sparse_init identity_init mae mse msle huber_loss label_smoothing crossentropy "
        "logitcrossentropy binarycrossentropy logitbinarycrossentropy kldivergence poisson_loss hinge_loss "
        "squared_hinge_loss dice_coeff_loss tversky_loss focal_loss binary_focal_loss "
        "siamese_contrastive_loss ctc_loss",
    "NNlib":
        "ConvDims DenseConvDims DepthwiseConvDims PoolDims σ sigmoid sigmoid_fast hardσ hardsigmoid logσ "
        "logsigmoid tanh_fast hardtanh tanhshrink relu relu6 leakyrelu rrelu elu gelu gelu_tanh gelu_sigmoid "
        "gelu_erf swish hardswish lisht selu celu softplus softsign logcosh mish softshrink trelu "
        "thresholdrelu softmax softmax! logsoftmax logsoftmax! ∇softmax ∇softmax! ∇logsoftmax ∇logsoftmax! "
        "logsumexp dot_product_attention dot_product_attention_scores make_causal_mask dropout dropout! "
        "batched_mul batched_mul! ⊠ batched_vec batched_transpose batched_adjoint gather gather! scatter "
        "scatter! grid_sample ∇grid_sample fold unfold conv conv! conv_bias_act bias_act! ∇conv_data "
        "∇conv_data! ∇conv_filter ∇conv_filter! depthwiseconv depthwiseconv! ∇depthwiseconv_data "
        "∇depthwiseconv_filter maxpool maxpool! ∇maxpool meanpool meanpool! ∇meanpool lpnormpool lpnormpool! "
        "∇lpnormpool pad_constant pad_zeros pad_repeat pad_reflect pad_symmetric pad_circular "
        "upsample_nearest upsample_linear upsample_bilinear upsample_trilinear ∇upsample_nearest "
        "∇upsample_linear ∇upsample_bilinear ∇upsample_trilinear pixel_shuffle imrotate ∇imrotate glu "
        "within_gradient batchnorm ∇batchnorm layernorm groupnorm instancenorm ctc_loss stft istft "
        "spectrogram hann_window hamming_window melscale_filterbanks @disallow_spawns is_strided storage_type",
    "Optimisers":
        "Descent Momentum Nesterov Rprop RMSProp Adam AdamW AdaMax NAdam RAdam AMSGrad OAdam AdaBelief "
        "AdaGrad AdaDelta Lion WeightDecay SignDecay ClipGrad ClipNorm OptimiserChain AccumGrad "
        "MixedPrecision ADAM ADAMW NADAM RADAM OADAM ADAGrad ADADelta AbstractRule apply! init setup update "
        "update! adjust adjust! freeze! thaw! destructure trainables trainable isnumeric maywrite Leaf @.. "
        "@lazy @def",
    "MLUtils":
        "numobs getobs getobs! mapobs filterobs groupobs joinobs shuffleobs randobs batchsize BatchView "
        "obsview ObsView ObsDim eachobs DataLoader kfolds leavepout timeseries_kfolds splitobs oversample "
        "undersample slidingwindow batch unbatch batchseq batch_sequence batched_searchsortedfirst "
        "batched_searchsortedlast chunk fill_like ones_like zeros_like rand_like randn_like falses_like "
        "trues_like flatten normalise rescale group_counts group_indices rpad_constant stack unstack "
        "unsqueeze topk Datasets load_iris",
    "MLDataDevices":
        "supported_gpu_backends gpu_device cpu_device reset_gpu_device! gpu_backend! default_device_rng "
        "get_device get_device_type set_device! CPUDevice CUDADevice AMDGPUDevice MetalDevice oneAPIDevice "
        "OpenCLDevice ReactantDevice reactant_device UnknownDevice DeviceIterator loaded functional isleaf "
        "MLDataDevices DeviceSelectionException",
    "OneHotArrays":
        "onehot onehotbatch onecold OneHotArray OneHotVector OneHotMatrix",
    "Functors":
        "@functor @leaf @flexiblefunctor functor children fmap fmapstructure fmap_with_path "
        "fmapstructure_with_path fcollect fleaves isleaf execute AbstractWalk DefaultWalk StructuralWalk "
        "ExcludeWalk CachedWalk CollectWalk AnonymousWalk IterateWalk KeyPath haskeypath getkeypath "
        "setkeypath!",
    "ParameterSchedulers":
        "Step Exp Poly Inv Constant Triangle TriangleDecay2 TriangleExp Sin SinDecay2 SinExp CosAnneal "
        "OneCycle Sequence Loop Interpolator Shifted ComposedSchedule AbstractSchedule Stateful next! reset! "
        "Scheduler",
}
# Names that cflux does not have yet. The list only becomes shorter.
NOT_YET = {}
# Functions that have the name of an entry of NOT_YET but do something else.
OTHER = {"fx_exp", "fx_sin", "fx_next", "fx_step"}


def declared(root):
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "tools"))
    import headers
    return set(headers.symbols(root))


def rows(text):
    """package → [(names in Julia, names in C, the column C, remark)]"""
    found, package = {}, None
    for line in text.split("\n"):
        title = re.match(r"### Names of (\w+)", line)
        package = title[1] if title else None if line.startswith("#") else package
        cells = [c.strip() for c in line.strip("|").split("|")]
        if package and line.startswith("| `") and len(cells) == 3:
            julia = re.findall(r"`([^`]+)`", cells[0])
            found.setdefault(package, []).append((julia, re.findall(r"`((?:fx|FX)_\w+)", cells[1]), cells[1], cells[2]))
    return found


def plain(name):
    return re.sub(r"[^a-z0-9]", "", name.lower())


def check_package(package, table, symbols, errors):
    listed = [name for julia, _, _, _ in table for name in julia]
    for name in sorted(set(NAMES[package].split()) - set(listed)):
        errors.append(f"{package}: {name} has no row")
    errors += [f"{package}: {name} is not a name of {package}" for name in sorted(set(listed) - set(NAMES[package].split()))]
    errors += [f"{package}: {name} has two rows" for name in sorted(set(listed)) if listed.count(name) > 1]
    for julia, c, cell, remark in table:
        errors += [f"{package}: {name}, for {julia[0]}, is not declared in a header" for name in c if name not in symbols]
        later = cell == "not yet"
        if not c and not later and not remark:
            errors.append(f"{package}: {julia[0]} has neither a name in C nor a reason")
        for name in julia:
            if later != (name in NOT_YET.get(package, "").split()):
                errors.append(f"{package}: {name} is {'not ' if later else ''}in NOT_YET, but its row says otherwise")


def check(root):
    with open(os.path.join(root, "docs", "flux-names.md"), encoding="utf-8") as f:
        tables = rows(f.read())
    symbols, errors = declared(root), []
    ours = {plain(s[3:]): s for s in symbols - OTHER if s.startswith("fx_")}
    for package in NAMES:
        check_package(package, tables.get(package, []), symbols, errors)
        for name in NOT_YET.get(package, "").split():
            if plain(name) in ours:
                errors.append(f"{package}: {name} is declared ({ours[plain(name)]}): run "
                              f"tests/structure/check_flux_names.py --update")
    errors += [f"there is a table of {p}, which is not in NAMES" for p in sorted(set(tables) - set(NAMES))]
    return sum(len(t) for t in tables.values()), errors


def take(text, name, symbol):
    """Returns the page with a new row for `name`, which was among the names that are "not yet" supported."""
    lines = []
    for line in text.split("\n"):
        if line.startswith("| `") and "| not yet |" in line and f"`{name}`" in line:
            lines.append(f"| `{name}` | `{symbol}` |  |")
            left = [n for n in re.findall(r"`([^`]+)`", line) if n != name]
            line = "| " + ", ".join(f"`{n}`" for n in left) + " | not yet |  |" if left else None
        if line is not None:
            lines.append(line)
    return "\n".join(lines)


def update(root):
    ours = {plain(s[3:]): s for s in declared(root) - OTHER if s.startswith("fx_")}
    page, own = os.path.join(root, "docs", "flux-names.md"), os.path.abspath(__file__)
    with open(page, encoding="utf-8") as f, open(own, encoding="utf-8") as g:
        text, (before, mark, rest) = f.read(), g.read().partition("NOT_YET = {")
    lists, end, after = rest.partition("\n}\n")
    for package, names in NOT_YET.items():
        for name in names.split():
            if plain(name) in ours:
                text = take(text, name, ours[plain(name)])
                lists = re.sub(rf"(?<=[\" ]){re.escape(name)}(?: |(?=\"))", "", lists)
    with open(page, "w", encoding="utf-8") as f, open(own, "w", encoding="utf-8") as g:
        f.write(text)
        g.write(before + mark + lists + end + after)


def main():
    places = [a for a in sys.argv[1:] if a != "--update"]
    root = os.path.abspath(places[0] if places else os.path.join(os.path.dirname(__file__), "..", ".."))
    if "--update" in sys.argv:
        update(root)
        return 0
    count, errors = check(root)
    if count < 100:
        errors.append(f"found {count} rows only, expected at least 100")
    for e in errors:
        print(e, file=sys.stderr)
    later = sum(len(n.split()) for n in NOT_YET.values())
    total = sum(len(n.split()) for n in NAMES.values())
    print(f"{total} names in {count} rows, {later} not yet, {len(errors)} errors")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
