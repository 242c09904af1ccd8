"""Kinds of operators' work, and modules' parts of a layer: one table each.

The first entry that fits decides; `register_operator("aten::my_kernel", "attention")` goes before all. Simple
arithmetic inside a module that is known for a kind of work, such as a normalisation written in Python, is of
that kind: another table, by the last part of the module's path, to which `register_module("my_norm", "norm")`
adds.
"""

from __future__ import annotations

import re
from functools import lru_cache

from flagscale_perf.profile.records import Sort

MATMUL, ATTENTION, NORM, ACTIVATION, EMBEDDING = "matmul", "attention", "norm", "activation", "embedding"
LOSS, ELEMENTWISE, REDUCTION, COPY, VIEW = "loss", "elementwise", "reduction", "copy", "view"
OPTIMIZER, COMMUNICATION, HOST, ENGINE, OTHER = "optimizer", "communication", "host", "engine", "other"
COMPILED = "compiled"
# Kinds of work in the order in which they are shown.
KINDS = (
    *(MATMUL, ATTENTION, NORM, ACTIVATION, EMBEDDING, LOSS, ELEMENTWISE, REDUCTION, COPY, VIEW, COMPILED),
    *(OPTIMIZER, OTHER, COMMUNICATION, HOST, ENGINE),
)
COLOURS = {
    MATMUL: "blue",
    ATTENTION: "sky",
    NORM: "green",
    ACTIVATION: "yellow",
    EMBEDDING: "orange",
    COMMUNICATION: "red",
    HOST: "grey",
    ENGINE: "faint",
}
# Kind -> what the operator's name has in it, without its namespace, in small letters.
_OPERATORS: tuple[tuple[str, str], ...] = (
    (COMPILED, r"compiledfxgraph|compiled region|torch-compiled|inductor|^triton_"),
    (
        COMMUNICATION,
        r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast_$"
        r"|^(i?send|i?recv)|barrier|^shm_|wait_tensor",
    ),
    (OPTIMIZER, r"^_fused_(adam|sgd|adagrad)|optimizer\.step"),
    (ATTENTION, r"attention|flash_attn|fmha|paged_attn|reshape_and_cache|rotary|rope"),
    (NORM, r"layer_?norm|rms_?norm|batch_norm|group_norm|fused_norm"),
    (EMBEDDING, r"embedding|^(index_select|gather)"),
    (LOSS, r"nll_loss|cross_entropy|log_softmax"),
    (ACTIVATION, r"silu|gelu|relu|swiglu|sigmoid|tanh|softmax|softplus|glu|mish"),
    (
        MATMUL,
        r"^(mm|addb?mm|bmm|baddbmm|matmul|linear|einsum|v?dot|mv|addmv|outer|bilinear|_trilinear|_addmm)"
        r"|(scaled|grouped|foreach|sparse|int|pack|dtypes)_(grouped_)?(mm|linear)|_quant_matmul"
        r"|gemm|onednn_\w*mm|packed_linear|conv(olution|\d+d|_transpose\d+d)|mkldnn_.*linear|_mkl_linear"
        r"|_linear_pointwise|qlinear|rnn_layer|^_cudnn_rnn",
    ),
    (
        COPY,
        r"copy|^(_to_copy|to|clone|contiguous|cat|stack|fill_|zero_|zeros|ones|full|empty|arange|new_)"
        r"|^(index_put|slice_backward|select_backward|masked_fill|resize_|repeat|concat)|memcpy|memset|pad",
    ),
    (
        REDUCTION,
        r"^(sum|mean|max|min|argmax|argmin|norm|linalg_vector_norm|all|any|topk|sort|cumsum|prod|var"
        r"|std|amax|multinomial|isfinite|_foreach_norm)",
    ),
    (
        VIEW,
        r"view|reshape|transpose|permute|expand|unsqueeze|squeeze|slice|select|split|chunk|^t$|^t_"
        r"|as_strided|narrow|detach|alias|unbind|flatten|size|stride|resolve_|lift_fresh|broadcast_to|contiguous",
    ),
    (
        ELEMENTWISE,
        r"^(_?foreach_)?_?(add|sub|rsub|mul|div|pow|rsqrt|sqrt|exp|log|neg|abs|cos|sin|where|clamp"
        r"|lerp|addc|eq|ne|lt|le|gt|ge|bitwise|logical|reciprocal|maximum|minimum|dropout|bernoulli|native_"
        r"dropout|triu|tril|erf|square|threshold|floor|round|remainder|item|_local_scalar)",
    ),
)
_COMPILED = tuple((kind, re.compile(pattern)) for kind, pattern in _OPERATORS)
_NODE = re.compile(r"^(autograd::engine::evaluate_function: )?(\w+?)Backward\d*$")
_ATTENTION_MODULE = re.compile(r"(^|\.)(\w*attn\w*|\w*attention\w*)$", re.IGNORECASE)
_own: dict[str, str] = {}
_own_modules: dict[str, str] = {}
_BY_SORT: dict[int, str] = {Sort.HOST: HOST, Sort.ENGINE: ENGINE, Sort.COMMUNICATION: COMMUNICATION}
_SIMPLE = frozenset({ELEMENTWISE, REDUCTION, COPY, OTHER})
# Kind -> the last part of the path of a module whose arithmetic is of that kind, in small letters.
_MODULES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (NORM, re.compile(r"^(\w*layer_?norm|\w*rms_?norm|\w+_norm|norm\d*|ln(_\w+)?|\w+_ln)$")),
    (ATTENTION, re.compile(r"^(rotary_emb\w*|rotary_pos_emb\w*|rotary|rope)$")),
    (ACTIVATION, re.compile(r"^(act|act_fn|activation|activation_fn|activation_func|gelu|silu)$")),
)
# What a module of a layer does, by the last part of its path; what the requirement calls it.
_PARTS = (
    ("linear_qkv", re.compile(r"^(q_proj|k_proj|v_proj|qkv_proj|linear_qkv|linear_q|linear_kv|c_attn|qkv)$")),
    ("linear_output", re.compile(r"^(o_proj|out_proj|linear_proj|dense)$")),
    ("attention_compute", re.compile(r"^(core_attention|attn|dot_product_attention)$")),
)


def register_operator(name: str, kind: str) -> None:
    """Gives the operator of this whole name, such as `mylib::fused_mlp`, a kind: of `KINDS`, or a new one."""
    _own[name] = kind
    kind_of.cache_clear()


def register_module(name: str, kind: str) -> None:
    """Registers a kind for what modules of this name (the last part of their path) compute, except products
    of matrices and operators that have a kind by their own name.
    """
    _own_modules[name] = kind
    kind_of.cache_clear()


def forget_operators() -> None:
    """Undoes every `register_operator` and `register_module`."""
    _own.clear()
    _own_modules.clear()
    kind_of.cache_clear()


@lru_cache(maxsize=65536)
def kind_of(op: str, phase: str = "", module: str = "", sort: int = Sort.OPERATOR) -> str:
    """The kind of work of one row."""
    if op in _own:
        return _own[op]
    if sort in _BY_SORT:
        return _BY_SORT[sort]
    if phase == OPTIMIZER:
        return OPTIMIZER
    found = _named(op)
    if found in _SIMPLE and (kind := _of_module(module)):
        return kind
    # softmax and batched products of an attention that is written out in Python
    is_plain = found == ACTIVATION and "softmax" in op or found == MATMUL and "bmm" in op
    return ATTENTION if is_plain and _ATTENTION_MODULE.search(module) else found


def part_of(module: str, kind: str) -> str:
    """The requirement's name for a module's work, such as `linear_qkv`; otherwise the operator's kind."""
    last = module.rpartition(".")[2]
    if kind == ATTENTION:
        return "attention_compute"
    return next((part for part, pattern in _PARTS if pattern.match(last)), kind)


def _of_module(module: str) -> str:
    """The kind of a module's arithmetic; "" if it is not of one particular kind."""
    last = module.rpartition(".")[2]
    if last in _own_modules:
        return _own_modules[last]
    return next((kind for kind, pattern in _MODULES if pattern.match(last.lower())), "")


def _named(op: str) -> str:
    node = _NODE.match(op)
    # the class of a node, `NativeLayerNormBackward0`, is named after its operator, `native_layer_norm`
    name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", node[2]) if node else op.rpartition("::")[2]
    return next((kind for kind, pattern in _COMPILED if pattern.search(name.lower())), OTHER)
