"""The recommendations on the page of text, in English and in Chinese, as the requirement words them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from flagscale_perf.analysis.rules import Finding
from flagscale_perf.spine.units import percent


@dataclass(frozen=True)
class Words:
    """The wording in one language.

    Attributes:
        advice, evidence, gain, unjudged, nothing: what stands before or instead of a recommendation.
        titles: by the finding's name; `{}` is the figure that broke the limit. Else the finding's own.
        changes: what to do, likewise.
    """

    advice: str
    evidence: str
    gain: str
    unjudged: str
    nothing: str
    titles: Mapping[str, str] = field(default_factory=dict)
    changes: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def of(self, finding: Finding) -> tuple[str, Sequence[str]]:
        """Title and changes of a finding."""
        first = finding.evidence[0]
        figure = percent(first.value).replace(" ", "") if first.unit == "share" else f"{first.value:.4g}"
        title = self.titles.get(finding.name, finding.title).format(figure)
        own = [": ".join([*change.flags, change.text]) for change in finding.changes]
        return title, self.changes.get(finding.name, own)


ENGLISH = Words(
    advice="suggestions",
    evidence="Evidence",
    gain="Would save at most",
    unjudged="Not judged",
    nothing="None: nothing is above a threshold.",
)
CHINESE = Words(
    advice="建议",
    evidence="依据",
    gain="最多可节省",
    unjudged="未判断",
    nothing="无: 没有指标超过阈值。",
    titles={
        "serialization": "Serialization占{}的时间",
        "transport": "发送/接收占{}的时间",
        "many_calls": "RPC调用次数过多({}次)",
        "half_precision": "数据量过大(平均每次{} MiB)",
        "shared_memory": "数组经套接字复制, 占{}的时间",
        "repeated_kv": "K/V重复发送, 占{}",
        "unfused_attention": "注意力分两次调用, 分数矩阵往返, 占{}",
    },
    changes={
        "serialization": (
            "使用共享内存替代msgpack序列化",
            "使用更高效的序列化格式(如protobuf)",
            "减少传输的数据量(如使用bfloat16)",
        ),
        "transport": (
            "检查传输协议: 日志首行应为IPC, 而不是TCP",
            "大数组使用共享内存",
            "运行diagnose_transport.py, 看瓶颈是否真的在传输",
        ),
        "many_calls": ("算子融合,减少RPC调用次数", "批量处理多个操作", "缓存重复计算的结果"),
        "half_precision": ("使用bfloat16, 数据量减半",),
        "shared_memory": ("使用共享内存: 每个字节只复制一次",),
        "repeated_kv": ("K/V每个头只发送一次, 由服务器重复",),
        "unfused_attention": ("融合注意力: 两次乘法和softmax合为一次调用",),
    },
)
