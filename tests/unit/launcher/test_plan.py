"""A configuration becomes one whole command, and what cannot work is refused by name."""

import pytest

import flagscale_perf.launcher.plan as plan_module
from flagscale_perf.launcher.config import read_job
from flagscale_perf.launcher.plan import make_plan
from flagscale_perf.spine.errors import PerfError

HERE = "/here"


def test_whole_command(config, tmp_path) -> None:
    plan = make_plan(read_job(config, HERE), {})
    root = tmp_path / "FlagScale"
    assert plan.command == [
        *("/usr/bin/python3", "-m", "torch.distributed.run", "--standalone"),
        *("--nproc_per_node", "2", "-m", "flagscale_perf.launch", f"{root}/flagscale/train/train_gpt.py"),
        *("--enable-perf-monitor", "--num-layers", "2", "--perf-log-dir"),
        f"{tmp_path}/exp/logs/perf_monitor",
    ]
    assert plan.job.env == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    assert plan.pythonpath[:2] == [str(root), f"{root}/third_party/Megatron-LM"]
    assert plan.job.before_start == ""
    assert plan.resolved == []


def test_the_experiments_name_is_the_runs_unless_another_is_given(config) -> None:
    config["experiment"]["exp_name"] = "llama\n 7b"
    assert make_plan(read_job(config, HERE), {}).command[-2:] == ["--perf-run-name", "llama 7b"]
    config["train"]["system"]["perf_run_name"] = "mine"
    words = make_plan(read_job(config, HERE), {}).command
    assert words.count("--perf-run-name") == 1 and words[words.index("--perf-run-name") + 1] == "mine"


def test_package_that_the_job_finds_anyway_is_not_put_on_its_path(config, monkeypatch) -> None:
    monkeypatch.setattr(
        plan_module.flagscale_perf,
        "__file__",
        plan_module.site.getsitepackages()[0] + "/flagscale_perf/__init__.py",
    )
    assert len(make_plan(read_job(config, HERE), {}).pythonpath) == 2
    monkeypatch.setattr(plan_module.flagscale_perf, "__file__", "/checkout/flagscale_perf/__init__.py")
    assert make_plan(read_job(config, HERE), {}).pythonpath[2:] == ["/checkout"]


def test_output_paths_are_resolved_and_said(config, tmp_path) -> None:
    config["train"]["system"] |= {
        "perf_log_dir": "p",
        "tensorboard_dir": "tb",
        "checkpoint": {"save": "/abs", "load": "c", "save_interval": 5},
    }
    plan = make_plan(read_job(config, HERE), {})
    assert plan.resolved == [
        f"train.system.tensorboard_dir: tb -> {tmp_path}/exp/tb",
        f"train.system.checkpoint.load: c -> {tmp_path}/exp/c",
        f"train.system.perf_log_dir: p -> {tmp_path}/exp/p",
    ]
    values = {key: setting.value for key, setting in plan.settings.items()}
    assert values["save"] == "/abs"
    assert plan.perf.perf_log_dir == values["perf_log_dir"] == f"{tmp_path}/exp/p"


def test_home_is_expanded_in_every_option_and_a_directory_is_no_address(config, monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/srv/me")
    given = {
        "data_path": ["0.5", "~/a", "0.5", "s3://bucket/b"],
        "data_cache_path": "~/cache",
        "pretrained_checkpoint": "~/model",
        "one_logger_run_name": "~mine",
    }
    config["train"]["system"] |= given
    settings = make_plan(read_job(config, HERE), {}).settings
    assert {key: settings[key].value for key in given} == {
        "data_path": ["0.5", "/srv/me/a", "0.5", "s3://bucket/b"],
        "data_cache_path": "/srv/me/cache",
        "pretrained_checkpoint": "/srv/me/model",
        "one_logger_run_name": "~mine",
    }
    config["train"]["system"]["data_cache_path"] = "s3://bucket/cache"
    with pytest.raises(PerfError, match="train.system.data_cache_path: 's3://bucket/cache' is an address"):
        make_plan(read_job(config, HERE), {})


def test_directories_flagscale_would_give_a_job_that_names_none(config, tmp_path) -> None:
    config["train"]["system"] = {"save_interval": 5, "wandb_project": "w"}
    values = {key: setting.value for key, setting in make_plan(read_job(config, HERE), {}).settings.items()}
    exp = f"{tmp_path}/exp"
    assert values == {
        "tensorboard_dir": f"{exp}/tensorboard",
        "wandb_save_dir": f"{exp}/wandb",
        "save": f"{exp}/checkpoints",
        "load": f"{exp}/checkpoints",
        "save_interval": 5,
        "wandb_project": "w",
        "num_layers": 2,
        "perf_log_dir": f"{exp}/logs/perf_monitor",
    }


def test_null_directory_stays_off(config) -> None:
    config["train"]["system"] |= {"save_interval": 5, "save": None, "load": None}
    assert not {"--save", "--load", "--tensorboard-dir"} & set(make_plan(read_job(config, HERE), {}).command)


def test_files_that_are_only_in_flagscale_are_taken_from_there(config, tmp_path) -> None:
    for path in ("FlagScale/vocab.json", "FlagScale/mine.json", "mine.json"):
        (tmp_path / path).write_text("")
    config["train"]["data"] = {
        "vocab_file": "./vocab.json",
        "merge_file": "mine.json",
        "tokenizer_model": "gone",
        "data_path": "vocab.json",
    }
    values = {
        key: setting.value for key, setting in make_plan(read_job(config, str(tmp_path)), {}).settings.items()
    }
    assert values["vocab_file"] == f"{tmp_path}/FlagScale/vocab.json"
    assert (values["merge_file"], values["tokenizer_model"], values["data_path"]) == (
        "mine.json",
        "gone",
        "vocab.json",
    )


def test_environment_of_the_job_decides_options_that_the_configuration_leaves_open(config, tmp_path) -> None:
    """Before the caller's, which decides what nobody else does."""
    environ = {"FLAGSCALE_PERF_LOG_DIR": "from_caller"}
    for envs, expected in (({}, "from_caller"), ({"FLAGSCALE_PERF_LOG_DIR": "from_env"}, "from_env")):
        config["experiment"]["envs"] = envs
        perf = make_plan(read_job(config, HERE), environ).perf
        assert perf.perf_log_dir == f"{tmp_path}/exp/{expected}"


def test_variables(config) -> None:
    config["experiment"]["envs"] = {
        "A": "x y",
        "B": 3,
        "C": True,
        "D": False,
        "E": None,
        "CUDA_DEVICE_MAX_CONNECTIONS": 8,
    }
    expected = {"A": "x y", "B": "3", "C": "1", "D": "0", "E": None, "CUDA_DEVICE_MAX_CONNECTIONS": "8"}
    assert make_plan(read_job(config, HERE), {}).job.env == expected


@pytest.mark.parametrize(
    ("runner", "words"),
    [
        (
            {"max_restarts": 2, "log_dir": "details", "tee": "3", "no_python": True, "x": False, "y": None},
            "--standalone --nproc_per_node 2 --max_restarts 2 --log_dir {exp}/details --tee 3 --no_python",
        ),
        (
            {"nnodes": 2, "rdzv_endpoint": "node0:29500", "rdzv_id": "job"},
            "--nnodes 2 --nproc_per_node 2 --rdzv_endpoint node0:29500 --rdzv_id job",
        ),
        (
            {"nnodes": "1:1", "nproc_per_node": None, "rdzv_id": "job"},
            "--standalone --nproc_per_node 1",
        ),
    ],
    ids=["any", "a rendezvous of its own", "one machine needs none"],
)
def test_keys_of_the_runner_are_options_of_torchrun(config, tmp_path, runner, words) -> None:
    config["experiment"]["runner"] |= runner
    command = make_plan(read_job(config, HERE), {}).command
    expected = words.format(exp=tmp_path / "exp").split(" ")
    assert command[3 : command.index("flagscale_perf.launch") - 1] == expected


@pytest.mark.parametrize(
    ("where", "value", "message"),
    [
        (
            "runner.nnodes",
            2,
            "experiment.runner.nnodes: several machines need experiment.runner.hostfile=FILE, or else"
            " experiment.runner.rdzv_endpoint=HOST:PORT and this command on each of them",
        ),
        *(
            (
                where,
                value,
                f"experiment.{where}: {value!r} is not supported by this launcher, only {only!r};"
                " use FlagScale's own run.py for it",
            )
            for where, value, only in (("runner.type", "cloud", "ssh"), ("task.type", "serve", "train"))
        ),
        *(
            (
                where,
                value,
                f"experiment.{where}: {value!r} is not a single value; write a number, a text, true or false",
            )
            for where, value in (("runner.nproc_per_node", [1]), ("envs.A", {"x": 1}))
        ),
        *(
            (
                where,
                "\0",
                f"experiment.{where}: '\\x00' contains a NUL character, which no program can be given;"
                " remove it",
            )
            for where in ("envs.A", "cmds.before_start")
        ),
        (
            "envs.A-B",
            "x",
            "'experiment.envs.A-B': 'A-B' cannot be a variable's name; use letters, digits and _",
        ),
        (
            "runner.a b",
            1,
            "'experiment.runner.a b': 'a b' cannot be an option of torchrun; use letters, digits and _",
        ),
        (
            "task",
            "x",
            "experiment.task: task is 'x' and not a section of keys; see conf/train.yaml for the form",
        ),
    ],
)
def test_what_cannot_work_is_refused_by_name(config, where, value, message) -> None:
    *sections, key = where.split(".", 1) if "." in where else [where]
    place = config["experiment"]
    for name in sections:
        place = place[name]
    place[key] = value
    with pytest.raises(PerfError) as refusal:
        make_plan(read_job(config, HERE), {})
    assert str(refusal.value) == message


def test_an_unknown_column_of_the_log_is_refused(config) -> None:
    config["train"]["system"]["perf_columns"] = "mfu,forward_ns"
    with pytest.raises(
        PerfError, match="^perf_columns: 'forward_ns' is not a figure; did you mean forward_ms"
    ):
        make_plan(read_job(config, HERE), {})
    config["train"]["system"]["perf_columns"] = "MFU, forward_ms"
    plan = make_plan(read_job(config, HERE), {})
    assert plan.command[plan.command.index("--perf-columns") + 1] == "mfu,forward_ms"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("perf_log_intervall", 5, "the monitor has no such option; did you mean perf_log_interval?"),
        ("perf-log-intervall", 5, "the monitor has no such option; did you mean perf_log_interval?"),
        ("perf_quux_flurb", None, "the monitor has no such option"),
        ("enable_perf_monitr", True, "the monitor has no such option; did you mean enable_perf_monitor?"),
        ("no_perf_memory_track", True, "the monitor has no such option; did you mean perf_memory_tracking?"),
        ("perf_log_interval", 0, "0 is not a whole number from 1 to 1000000000; write for example 10"),
        ("perf_log_interval", -3, "-3 is not a whole number from 1 to 1000000000; write for example 10"),
        ("perf_log_interval", 2.5, "2.5 is not a whole number from 1 to 1000000000; write for example 10"),
        ("perf_log_interval", True, "True is not a whole number from 1 to 1000000000; write for example 10"),
        ("perf_log_dir", "", "'' is not a usable path; write for example logs/perf_monitor"),
        ("save", " ", "' ' is not a path; write one, or null to leave it out"),
        (
            "perf_log_dir",
            "a\nb",
            "'a\\nb' is not a usable path; write for example logs/perf_monitor",
        ),
        ("perf_breakdown", "maybe", "'maybe' is neither true nor false; write true or false"),
        ("perf_log_dir", ["a"], "['a'] is not a single value; write a number, a text, true or false"),
    ],
)
def test_wrong_options_are_refused_as_the_yaml_spells_them(config, key, value, message) -> None:
    config["train"]["system"][key] = value
    with pytest.raises(PerfError) as refusal:
        make_plan(read_job(config, HERE), {})
    assert str(refusal.value) == f"train.system.{key}: {message}"


def test_options_of_the_host_that_look_similar_are_left_to_it(config) -> None:
    config["train"]["system"] |= {"perform_initialization": True, "no_perf_memory_tracking": True}
    command = make_plan(read_job(config, HERE), {}).command
    assert {"--perform-initialization", "--no-perf-memory-tracking"} <= set(command)


@pytest.mark.parametrize(
    ("envs", "environ", "message"),
    [
        (
            {"FLAGSCALE_PERF_INTERVAL": 5},
            {},
            "experiment.envs.FLAGSCALE_PERF_INTERVAL: no option of the monitor has this variable;"
            " did you mean FLAGSCALE_PERF_LOG_INTERVAL?",
        ),
        (
            {},
            {"FLAGSCALE_PERF_LOGDIR": "x"},
            "environment variable FLAGSCALE_PERF_LOGDIR: no option of the monitor has this variable; did you"
            " mean FLAGSCALE_PERF_LOG_DIR?",
        ),
        (
            {},
            {"FLAGSCALE_PERF_LOG_INTERVAL": "x"},
            "FLAGSCALE_PERF_LOG_INTERVAL: 'x' is not a whole number from 1 to 1000000000;"
            " write for example 10",
        ),
    ],
)
def test_unknown_and_wrong_variables_are_refused(config, envs, environ, message) -> None:
    config["experiment"]["envs"] = envs
    with pytest.raises(PerfError) as refusal:
        make_plan(read_job(config, HERE), environ)
    assert str(refusal.value) == message


def test_a_variable_that_the_job_unsets_does_not_count(config, tmp_path) -> None:
    environ = {"FLAGSCALE_PERF_LOGDIR": "x", "FLAGSCALE_PERF_LOG_DIR": "from_caller"}
    config["experiment"]["envs"] = dict.fromkeys(environ)
    assert make_plan(read_job(config, HERE), environ).perf.perf_log_dir == f"{tmp_path}/exp/logs/perf_monitor"


@pytest.mark.parametrize(
    ("section", "key", "path"),
    [
        ("experiment", "exp_dir", "experiment.exp_dir"),
        ("train.system", "perf_log_dir", "train.system.perf_log_dir"),
        ("train.system", "tensorboard_dir", "train.system.tensorboard_dir"),
        ("train.system", "wandb_save_dir", "train.system.wandb_save_dir"),
        ("train.data", "tokenizer_model", "train.data.tokenizer_model"),
        ("experiment.task", "entrypoint", "experiment.task.entrypoint"),
        ("experiment.task", "python", "experiment.task.python"),
        ("experiment.runner", "log_dir", "experiment.runner.log_dir"),
        ("experiment.runner", "hostfile", "experiment.runner.hostfile"),
    ],
)
def test_an_address_is_refused_wherever_a_path_belongs(config, section, key, path) -> None:
    place = config
    for name in section.split("."):
        place = place[name]
    place[key] = "s3://bucket/x"
    with pytest.raises(PerfError) as refusal:
        make_plan(read_job(config, HERE), {})
    assert str(refusal.value) == (
        f"{path}: 's3://bucket/x' is an address, not a path of this machine; write /mnt/..., where it"
        " is mounted"
    )


def test_a_tilde_is_expanded_and_megatrons_own_addresses_reach_it(config, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    config["experiment"]["exp_dir"] = "~/run"
    config["train"]["system"] |= {"tensorboard_dir": "~/curves", "save": "msc://profile/run"}
    config["train"]["system"]["perf_log_dir"] = "~/perf"
    plan = make_plan(read_job(config, HERE), {})
    assert plan.job.paths.exp_dir == f"{tmp_path}/run"
    assert plan.perf.perf_log_dir == f"{tmp_path}/perf"
    assert plan.settings["tensorboard_dir"].value == f"{tmp_path}/curves"
    assert plan.settings["save"].value == "msc://profile/run"
