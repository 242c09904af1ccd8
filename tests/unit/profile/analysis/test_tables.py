"""A profile in figures."""

from __future__ import annotations

from flagscale_perf.analysis.blocks import Note, Pairs, Table
from flagscale_perf.profile.analysis import tables
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.report.format import cells


def test_the_parts_of_each_ranks_step(found: ProfileReport) -> None:
    table, said = tables.books(found, found.sums["train"])
    assert isinstance(table, Table)
    assert isinstance(said, Note)
    assert cells(table)[1:] == [
        ["rank 0", "2", "101.000", "70.000", "6.000", "13.000", "7.000", "3.000", "2.000", "98.0 %"],
        ["rank 1", "2", "101.000", "73.000", "6.000", "10.000", "7.000", "3.000", "2.000", "98.0 %"],
    ]
    assert said.text == "The parts add up to the step, nothing is rescaled; rows and parts differ by 0.00 %."


def test_layers_operators_and_modules(found: ProfileReport) -> None:
    sums = found.sums["train"]
    (layers,), (operators,), (modules,) = (
        make(found, sums) for make in (tables.layers, tables.operators, tables.modules)
    )
    assert isinstance(layers, Table)
    assert isinstance(operators, Table)
    assert isinstance(modules, Table)
    assert cells(layers)[2][:4] == ["layer 0", "53.000", "52.5 %", "36.500"]
    assert cells(operators)[1] == ["aten::mm", "matmul", "6.0", "61.500", "60.9 %", "73.2", "1.5", "36.6 %"]
    assert cells(modules)[1] == ["model.layers.0.self_attn.q_proj", "matmul", "36.500", "36.1 %"]


def test_the_roofs(found: ProfileReport) -> None:
    roofs, table = tables.roofline(found, found.sums["train"])
    assert isinstance(roofs, Pairs)
    assert isinstance(table, Table)
    assert cells(table)[2] == [
        *("layer 1 matmul", "25.000", "11.250", "50.0", "90.0", "1.8", "45.0 %", "compute"),
    ]


def test_memory_and_the_observer(found: ProfileReport) -> None:
    memory, _ = tables.memory(found)
    observer, _ = tables.observer(found)
    assert isinstance(memory, Table)
    assert isinstance(observer, Table)
    assert cells(memory)[1] == ["layer 0", "3.00", "2.00", "9.00"]
    assert cells(observer)[1] == [
        *("train", "1.047", "0.00494", "4", "1.072", "1.021", "0.000", "2.500", "10.000"),
    ]
