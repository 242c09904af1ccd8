"""The job's script is started through `launch`, with the search path that it would have had."""

import json

from flagscale_perf.launcher import entrypoint


def test_runs_the_named_script_through_launch(run_python, tmp_path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import json, sys\n"
        "print(json.dumps({'argv': sys.argv, 'main': __name__, 'hooked': "
        "'flagscale_perf.hosts.install' in sys.modules,\n"
        "                  'shadowed': [p for p in sys.path if p.endswith('flagscale_perf/launcher')]}))\n"
    )
    result = run_python(entrypoint.__file__, "--a", "b c", env={entrypoint.SCRIPT_VARIABLE: str(script)})
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == {
        "argv": [str(script), "--a", "b c"],
        "main": "__main__",
        "hooked": True,
        "shadowed": [],
    }


def test_a_python_that_puts_no_directory_first_keeps_its_search_path(run_python, tmp_path) -> None:
    (tmp_path / "of_the_host.py").write_text("")
    script = tmp_path / "scripts" / "script.py"
    script.parent.mkdir()
    script.write_text("import of_the_host; print('found')")
    env = {entrypoint.SCRIPT_VARIABLE: str(script), "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    assert run_python(entrypoint.__file__, env=env).stdout == "found\n"
