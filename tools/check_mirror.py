#!/usr/bin/env python3
"""Checks that tests/ mirrors trireme/, and that every source and test is listed in its CMakeLists.

trireme/<layer>/<unit>.h has tests/<layer>/<unit>_test.cc unless EXEMPT says why not.
"""

import re
import sys

from source_files import Report, repository_files, root_argument

# Headers without behaviour of their own, or whose behaviour another test holds; each with its reason.
EXEMPT = {
    "trireme/tasks/recommend/label_scores.h": "recommend_test learns and evaluates clicks and classes",
    "trireme/tasks/recommend/layers/pair_kernels.h": "pair_products_test compares each loop with libtorch's products",
    "trireme/tasks/recommend/network.h": "base of the models; the tests of each, and recommend_test recomputes",
    "trireme/tasks/recommend/recommend_config.h": "keys; recommend_test sets each",
    "trireme/tasks/recommend/recommend_stage.h": "recommend_test runs it at every layout",
    "trireme/tasks/recommend/retrieval_scores.h": "recommend_test evaluates it on several ranks",
    "trireme/tasks/recommend/scores.h": "pure interface; label_scores and retrieval_scores",
    "trireme/train/mixed_run.h": "table_servers_test runs it beside runs without servers",
    "trireme/train/server/server_ranks.h": "served_run_test and table_servers_test serve and replay with it",
    "trireme/parallel/embedding/rows/remote_rows.h": "pure interface; remote_table_test and served_tables_test have rows",
    "trireme/train/parallel/batch_feed.h": "every run's batches go through it",
    "trireme/train/parallel/model_tables.h": "recommend_test steps, skips and saves them",
    "trireme/base/clock.h": "one call; clock_offsets_test and recorder_test read it",
    "trireme/base/bounds.h": "numbers; config_test multiplies them out",
    "trireme/base/seconds.h": "two expressions; the tests of metrics and errors read them",
    "trireme/base/round_up.h": "one expression; segment and heap tests use it",
    "trireme/base/machine/multiversion.h": "macros; the tests of the loops that use them",
    "trireme/comm/group_options.h": "one struct of options",
    "trireme/comm/communicator.h": "pure interface; each transport's test checks it",
    "trireme/comm/rendezvous/transport.h": "one table; rendezvous_test connects over each",
    "trireme/comm/recorder/ring_layout.h": "bytes of a file; ring_test and recorder_test hold them",
    "trireme/comm/message/message_channel.h": "pure interface; message_exchange_test runs over gloo's",
    "trireme/comm/hierarchical/hierarchical_collectives.h": "hierarchical_communicator_test and transports_test run each",
    "trireme/parallel/expert/expert_axis.h": "one struct; row_exchange_test uses each field",
    "trireme/parallel/expert/sum_in_order.h": "expert_replicas_test sums each dtype over ranks, grouped_linear_test over rows",
    "trireme/parallel/expert/expert_hop.h": "row_exchange_test sends rows over one and two, and counts their bytes",
    "trireme/parallel/embedding/gradient_sinks.h": "embedding_tables_test updates and keeps, over several backwards",
    "trireme/parallel/embedding/rows/stored_rows.h": "pure interface; embedding_disk_test and remote_table_test read and write through it",
    "trireme/parallel/embedding/id_exchange.h": "embedding_tables_test counts its bytes, and looks up what it has brought",
    "trireme/parallel/embedding/pooling.h": "embedding_tables_test pools in every way, beside torch's embedding_bag",
    "trireme/parallel/embedding/row_gradients.h": "embedding_tables_test compares the sums, sample_tree_test their order",
    "trireme/parallel/embedding/rows/row_memory.h": "advice to the system; the tests of everything that reads rows",
    "trireme/parallel/embedding/table_look_up.h": "embedding_tables_test looks up and goes back at every placement",
    "trireme/parallel/embedding/term_merger.h": "embedding_tables_test sums over 1 to 8 ranks, with the bits of one",
    "trireme/parallel/server/link/connection.h": "hub_test introduces, refuses, cuts and queues over it",
    "trireme/parallel/server/replay_order.h": "parameter_server_test replays runs in their order, to the end of their log and beyond",
    "trireme/parallel/server/run_identity.h": "parameter_server_test refuses a server of another config",
    "trireme/parallel/server/server_options.h": "one struct; the tests of servers and clients use each field",
    "trireme/parallel/server/state/piece_update.h": "pure interface; shard_state_test updates pieces through it",
    "trireme/parallel/server/worker_link.h": "server_client_test and chain_test talk through it",
    "trireme/base/file/xxh3.h": "includes one of two headers; digest_test and file_test hash with it",
    "trireme/checkpoint/fail.h": "one expression; manifest_test and safetensors_test read its message",
    "trireme/checkpoint/publish.h": "checkpoint_test and interrupted_save_test commit, replace and remove with it",
    "trireme/checkpoint/write/link_shared.h": "incremental_test and site_checkpoints_test link with it",
    "trireme/checkpoint/write/shard_writer.h": "incremental_test and checkpoint_test read every file that it writes",
    "trireme/checkpoint/offline/progress.h": "one type; rewrite_test and tensor_diff_test are called back",
    "trireme/checkpoint/plain_name.h": "one expression; manifest_test, sharded_source_test and dcp_source_test read other names",
    "trireme/checkpoint/foreign/safetensors_source.h": "one loop; tensor_source_test and sharded_source_test read through it",
    "trireme/train/task/callback_kind.h": "one struct; config_test makes callbacks of tables of it",
    "trireme/train/callbacks/named_callback.h": "one struct; callbacks_test calls what it holds",
    "trireme/train/callbacks/run_view.h": "pure interface; the tests of the built-in callbacks look through it",
    "trireme/plan/tables/table_placer.h": "table_search_test places tables with it, beside enumeration",
    "trireme/tasks/recommend/table_planning.h": "automatic_tables_test measures with it, tests/cli/plan_tables_test.py plans",
    "trireme/launch/agent/crew.h": "agent_test starts, restarts, binds and ends it",
    "trireme/launch/agent/leader.h": "agent_test and coordinator_test: it passes on between the two",
    "trireme/launch/membership/limits.h": "numbers; plan_test and report_test read within them",
    "trireme/launch/process/exit_codes.h": "numbers; failure_test, classify_test and child_test see each",
    "trireme/launch/jobs/emit_writers.h": "one writer per scheduler; emit_test and tests/launch/emit_test.py read every file",
    "trireme/launch/jobs/schedulers.h": "one reader per scheduler; job_hosts_test reads fixtures of each",
    "trireme/cli/overrides.h": "Program.bad_input gives every kind of word",
    "trireme/cli/train/elastic_rank.h": "tests/cli/elastic_rank_test.py: workers of a fake agent",
    "trireme/cli/train/rank_group.h": "every Program test that trains",
    "trireme/cli/train/train_rank.h": "every Program test that trains",
    "trireme/tasks/language/foreign_tokenizer.h": "tests/cli/import_test.py imports with it, and begins runs of the same and of another",
    "trireme/tasks/language/foreign_weights.h": "tests/cli/import_test.py imports every class and begins runs with it",
    "trireme/tasks/language/hugging_face_import.h": "tests/cli/import_test.py imports what transformers wrote",
    "trireme/tasks/language/expert_buffers.h": "Program.experts resumes upcycled runs; a name too few would fail",
    "trireme/tasks/language/upcycle.h": "Program.experts goes on from the runs that it writes",
    "trireme/tasks/vision/image_classifier.h": "pure interface; vision_test classifies with every family",
    "trireme/tasks/vision/image_model.h": "pure interface; vision_test trains every family",
    "trireme/tasks/vision/trained_classifier.h": "vision_test loads what it has trained",
    "trireme/tasks/vision/vision_config.h": "structs of keys; vision_test parses them",
    "trireme/train/task/copy_box.h": "config_test copies configs with it",
    "trireme/dataset/as_config_error.h": "one call; the tests of every reader of data read its messages",
    "trireme/dataset/image/image_source.h": "pure interface; image_records_test reads images through it",
    "trireme/dataset/image/pixels.h": "structs; decode_test and resize_test use each",
    "trireme/dataset/recommend/record_file.h": "feature_source_test reads files of the right and of other sizes through it",
    "trireme/dataset/recommend/raw_data.h": "interfaces; the tests of each format read through them",
    "trireme/dataset/recommend/record_writer.h": "prepare_features_test reads what it has written",
    "trireme/dataset/recommend/vocabulary.h": "prepare_features_test: rows, classes and items of each format",
    "trireme/dataset/image/image_options.h": "one struct; image_folder_test uses each",
    "trireme/dataset/image/encoded_images.h": "image_folder_test and image_tar_test make their images with it",
    "trireme/train/run/batches.h": "options; trainer_test reads the same samples on any number of ranks",
    "trireme/train/state/training_state.h": "trainer_test and resume_test save and load it at every layout",
    "trireme/model/family/batch_axis.h": "two pointers; batch_norm_test shares statistics over it",
    "trireme/model/family/family.h": "pure interface; families_test asks every family",
    "trireme/model/family/hugging_face_form.h": "structs; hugging_face_test and families_test",
    "trireme/model/family/hugging_face_key.h": "structs; hugging_face_reader_test and llama_kinds_test",
    "trireme/model/family/hugging_face_mapping.h": "llama_kinds_test writes and reads the keys of every class",
    "trireme/model/family/network.h": "families_test runs every family's, whole and in stages",
    "trireme/model/layers/transformer_block.h": "recompute_test and dropout_test run the blocks of both families",
    "trireme/model/layers/batch_maker.h": "dropout_test and plan_test run models on its batches",
    "trireme/model/layers/linear.h": "two tensors; the layers' tests multiply by them",
    "trireme/model/model.h": "pure interface; the models' tests check it",
    "trireme/parallel/data/unit.h": "two types and one call",
    "trireme/parallel/data/unit_runner.h": "zero_test runs ZeRO-3 with it: uses, gathering ahead, releases",
    "trireme/parallel/data/sharded_weights.h": "zero_test: every stage's weights, memory and traffic",
    "trireme/parallel/data/same_module.h": "ddp_test: other modules on other ranks, rank 0's weights on all",
    "trireme/cli/commands.h": "declarations; tests/cli runs the commands",
    "trireme/cli/number_range.h": "tests/cli/ranges_test.py gives every option of every command numbers outside",
    "trireme/cli/output_file.h": "tests/cli/plan_test.py writes each kind, and one that it cannot",
    "trireme/cli/progress_bar.h": "what the terminal shows; tests/cli/offline_test.py reads it",
    "trireme/cli/console.h": "what the terminal shows; tests/cli reads it",
    "trireme/train/optimizer/optimizer_config.h": "one struct of keys; config_test parses it",
    "trireme/train/config/parallel_config.h": "one struct of keys; config_test parses it",
    "trireme/train/config/server_rules.h": "served_run_test meets each rule",
    "trireme/train/config/train_config.h": "one struct of keys; config_test parses it",
    "trireme/train/numerics/precision.h": "two tables; config_test parses their names",
    "trireme/train/offload/offload_config.h": "one struct of keys; config_test parses it",
    "trireme/parallel/data/compression/compression.h": "one table; gradient_compression_test makes each",
    "trireme/train/parallel/stage_ddp.h": "layouts_test runs it with experts on several ranks, on every axis",
    "trireme/parallel/context/attention_reach.h": "one struct; the tests of each form and of the blocks",
    "trireme/parallel/context/context_form.h": "one table; layouts_test runs each",
    "trireme/base/io/thread_io.h": "async_io_test runs over threads",
    "trireme/base/io/uring_io.h": "async_io_test runs over io_uring where this machine has it",
    "trireme/parallel/tensor/weight_gradients.h": "pure interface; column_linear_test defers with it",
    "trireme/train/parallel/parallel_model.h": "tests/parity/layouts_test: every layout against one rank",
    "trireme/train/step.h": "trainer_test checks every step's outcome at several layouts",
    "trireme/train/state/newest_checkpoint.h": "resume_test, resumption_test and places_test choose with it",
    "trireme/train/trainer_impl.h": "trainer_test runs it",
    "trireme/train/state/saved_run.h": "tests/cli finds every checkpoint with it; hugging_face_export_test the weights",
    "trireme/train/task/task.h": "interfaces; chain_task_test and trainer_test run tasks",
    "trireme/train/parallel/stage_costs.h": "tests/tasks/language/costs_test counts with it",
    "trireme/tasks/tasks.h": "one table; tests/train runs its tasks",
    "trireme/tasks/language/language.h": "tests/train and tests/parity train it; inputs_test opens it",
    "trireme/tasks/language/trained_model.h": "tests/cli generates from checkpoints with it",
    "trireme/cli/program.h": "tests/cli runs `trireme`, which is one",
    "trireme/cli/bench/bench_commands.h": "declarations; tests/cli runs the commands",
    "trireme/cli/data/data_commands.h": "declarations; tests/cli runs the commands",
    "trireme/cli/vision/vision_commands.h": "declarations; tests/cli runs the commands",
    "trireme/cli/plan/plan_commands.h": "declarations; tests/cli runs the commands",
    "trireme/cli/plan/planning.h": "tests/cli/plan_test.py reads every report that it makes",
    "trireme/cli/plan/serve.h": "tests/cli/plan_test.py serves dense and sparse models, and refuses bad input",
    "trireme/cli/plan/sweep.h": "tests/cli/plan_test.py sweeps nodes and axes, to CSV and SVG",
    "trireme/plan/cost/workload.h": "one struct; every test of plan makes some",
    "trireme/train/config/read_sections.h": "tests/cli/plan_test.py reads good and bad CLUSTER files",
    "trireme/cli/language/language_commands.h": "declarations; tests/cli runs the commands",
    "trireme/model/family/parts.h": "structs; families_test and layouts_test use each",
    "trireme/dataset/source.h": "an interface; batch_loader_test and token_source_test",
}


def listed(cmake, name):
    text = re.sub(r"#[^\n]*", "", cmake.read_text()) if cmake.is_file() else ""
    return re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w.-])", text) is not None


def listing(root, path):
    """The nearest CMakeLists.txt above `path`, and the path as it must stand there."""
    for folder in path.parents:
        if (root / folder / "CMakeLists.txt").is_file():
            return folder / "CMakeLists.txt", str(path.relative_to(folder))
    return path.parent / "CMakeLists.txt", path.name


def main():
    root = root_argument(__doc__)
    report = Report()
    files = repository_files(root, ".h", ".cc")
    headers = 0
    for path in files:
        if path.parts[0] == "trireme" and path.suffix == ".h":
            headers += 1
            test = "/".join(("tests", *path.parts[1:-1], f"{path.stem}_test.cc"))
            if str(path) not in EXEMPT and not (root / test).is_file():
                report.error(path, 1, "has no test", f"write {test}, or give EXEMPT in "
                             "tools/check_mirror.py the reason why it needs none")
            if str(path) in EXEMPT and (root / test).is_file():
                report.error(test, 1, f"{path} is exempt and has a test",
                             "remove it from EXEMPT in tools/check_mirror.py")
        if path.parts[0] == "trireme" or (path.parts[0] == "tests" and path.name.endswith("_test.cc")):
            cmake, name = listing(root, path)
            if not listed(root / cmake, name):
                report.error(path, 1, f"is not listed in {cmake}", "list it, or delete the file")
    known = {str(path) for path in files}
    for name in EXEMPT:
        if name not in known and (root / "tools/check_mirror.py").is_file():
            report.error("tools/check_mirror.py", 1, f"EXEMPT names {name}, which is gone", "remove it")
    return report.finish("mirror", f"{headers} headers")


if __name__ == "__main__":
    sys.exit(main())
