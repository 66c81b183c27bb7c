# SPDX-License-Identifier: MIT
"""What tools/new-rdma-core prints, and its exit status, for releases of rdma-core that are made up here: each is what
the script reads of one, in as few lines as possible.

usage: python3 tests/tree/new_rdma_core.py [SOURCE-DIRECTORY]
"""
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

OPERATIONS = ["int (*advise_mr)(struct ibv_pd *pd, int advice)",
              "struct ibv_pd *(*alloc_pd)(struct ibv_context *context)",
              "int (*poll_cq)(struct ibv_cq *cq, int count, struct ibv_wc *wc)",
              "void (*unimport_pd)(struct ibv_pd *pd)"]
NAMES = ["advise_mr", "alloc_pd", "poll_cq", "unimport_pd"]
PRIVATE = ["_verbs_init_and_alloc_context", "verbs_register_driver_@IBVERBS_PABI_VERSION@", "verbs_set_ops",
           "verbs_uninit_context"]
DRIVER = """
enum { VERBS_QP_XRCD = 1 << 0, VERBS_QP_EX = 1 << 1 };
enum ibv_mr_type { IBV_MR_TYPE_MR, IBV_MR_TYPE_NULL_MR, IBV_MR_TYPE_IMPORTED_MR, IBV_MR_TYPE_DMABUF_MR };
enum { VERBS_MATCH_MODALIAS = 2 };
struct verbs_mr { struct ibv_mr ibv_mr; int access; };
struct verbs_qp { union { struct ibv_qp qp; struct ibv_qp_ex qp_ex; }; uint32_t comp_mask; };
struct verbs_match_ent { void *driver_data; union { const char *modalias; uint64_t driver_id; } u; uint8_t kind; };
struct verbs_device_ops { const char *name; void (*uninit_device)(struct verbs_device *device); };
struct verbs_device { struct ibv_device device; /* first */ const struct verbs_device_ops *ops; };
/* a comment with a ; and a } in it */
struct verbs_context_ops {
%s
};
void verbs_register_driver(const struct verbs_device_ops *ops);
void *_verbs_init_and_alloc_context(struct ibv_device *device, int cmd_fd);
void verbs_uninit_context(struct verbs_context *context);
void verbs_set_ops(struct verbs_context *context, const struct verbs_context_ops *ops);
"""
VERBS = """
struct ibv_device { char name[64]; };
struct ibv_context { struct ibv_device *device; int cmd_fd; };
struct ibv_mr { struct ibv_context *context; uint32_t lkey; };
struct ibv_qp { struct ibv_context *context; uint32_t qp_num; };
struct ibv_qp_ex { struct ibv_qp qp_base; void (*wr_start)(void); void (*wr_abort)(struct ibv_qp_ex *qp); };
struct ibv_cq { struct ibv_context *context; int cqe; };
struct ibv_cq_ex { struct ibv_context *context; int cqe; };
struct ibv_srq { struct ibv_context *context; };
struct ibv_port_attr { int state; uint16_t flags; };
struct verbs_context {
  // new ones stand here
  int (*query_port)(struct ibv_context *context, uint8_t port_num);
  size_t sz;
  struct ibv_context context;
};
"""
UVERBS = """
struct ib_uverbs_cmd_hdr { __u32 command; };
struct ib_uverbs_create_comp_channel { __aligned_u64 response; };
struct ib_uverbs_create_comp_channel_resp { __u32 fd; };
struct ib_uverbs_comp_event_desc { __aligned_u64 cq_handle; };
struct ib_uverbs_async_event_desc { __aligned_u64 element; };
"""
RDMA_CM = "enum { RDMA_USER_CM_CMD_CREATE_ID, RDMA_USER_CM_CMD_DESTROY_ID };"
LIST = "".join(f"#ifdef UIW_{kind}\n{rows}#endif\n" for kind, rows in (
    ("PRIVATE_ABI", "UIW_PRIVATE_ABI(70, 70)\n"), ("RELEASE_WITHIN_ABI", ""), ("CONTEXT_GROWTH", ""),
    ("OPERATION", "".join(f"UIW_OPERATION({name}, 39)\n" for name in NAMES))))


def release(number, abi, operations=None, public=(), private=None, changes=()):
    """The files of a release; `changes` are texts to find in them and what takes their place."""
    files = {
        "CMakeLists.txt": f'set(PACKAGE_VERSION "{number}.0")\nset(IBVERBS_PABI_VERSION "{abi}")\n',
        "libibverbs/driver.h": DRIVER % "".join(f"  {each};\n" for each in operations or OPERATIONS),
        "libibverbs/verbs.h": VERBS,
        "libibverbs/libibverbs.map.in": "IBVERBS_1.1 {\n global:\n  ibv_open_device;\n"
                                        + "".join(f"  {name};\n" for name in public) + "};\n"
                                        "IBVERBS_PRIVATE_@IBVERBS_PABI_VERSION@ {\n global:\n"
                                        + "".join(f"  {name};\n" for name in private or PRIVATE) + "};\n",
        "kernel-headers/rdma/ib_user_verbs.h": UVERBS,
        "kernel-headers/rdma/rdma_user_cm.h": RDMA_CM,
    }
    for old, new in changes:
        if not any(old in text for text in files.values()):
            raise ValueError(f"no file of a release has {old}")
        files = {path: text.replace(old, new) for path, text in files.items()}
    return files


def new_pointer(name):
    return "  // new ones stand here\n", f"  void (*{name})(struct ibv_pd *pd);\n"


NEW_AT_END = [*OPERATIONS, "int (*zap_qp)(struct ibv_qp *qp)"]
NEW_IN_MIDDLE = [*OPERATIONS[:2], "int (*bind_all)(struct ibv_qp *qp)", *OPERATIONS[2:]]
# Title, the release, the exit status, what stands in the output, and what must not.
CASES = [
    ("nothing changed", release(71, 70), 0, ["nothing that providers meet has changed"], ["add to"]),
    ("nothing but the number", release(71, 71), 0,
     ["nothing but the number of the private ABI has changed", "add to list.def: UIW_PRIVATE_ABI(71, 71)"],
     ["UIW_OPERATION"]),
    ("a parameter has another name", release(71, 70, changes=[("*pd, int advice", "*domain,\n  int hint")]), 0,
     ["nothing that providers meet has changed"], []),
    ("operation at the end", release(71, 71, NEW_AT_END), 0,
     ["operation added: zap_qp, behind unimport_pd", "UIW_PRIVATE_ABI(71, 71)", "UIW_OPERATION(zap_qp, 71)"], []),
    ("operation in the middle", release(71, 71, NEW_IN_MIDDLE), 0,
     ["operation added: bind_all, behind alloc_pd", "UIW_OPERATION(bind_all, 71)"], []),
    ("the same within a private ABI", release(71, 70, NEW_IN_MIDDLE, ["ibv_bind_all"]), 0,
     ["UIW_RELEASE_WITHIN_ABI(70, 71, ibv_bind_all)", "UIW_OPERATION(bind_all, 71)"], ["UIW_PRIVATE_ABI"]),
    ("the same, and nothing tells the release", release(71, 70, NEW_IN_MIDDLE), 1,
     ["by hand: the private ABI grew, but neither its number changed nor is there a new public function"], ["add to"]),
    ("the same, and only a private symbol is new",
     release(71, 70, NEW_IN_MIDDLE, private=[*PRIVATE, "ibv_cmd_bind_all"]), 1,
     ["by hand: the private ABI grew"], ["add to"]),
    ("operation removed", release(71, 71, [*OPERATIONS[:2], OPERATIONS[3]]), 1,
     ["by hand: operation poll_cq is gone from verbs_context_ops, and uiw has it"], ["add to"]),
    ("operations out of order", release(71, 71, [OPERATIONS[1], OPERATIONS[0], *OPERATIONS[2:]]), 1,
     ["by hand: verbs_context_ops is not in the order of the names: advise_mr stands behind alloc_pd"], ["add to"]),
    ("another parameter", release(71, 71, changes=[("*cq, int count", "*cq, long count")]), 1,
     ["by hand: operation poll_cq is declared otherwise", "'int (*poll_cq)(struct ibv_cq*, long, struct ibv_wc*)'"],
     ["add to"]),
    ("verbs_context grows in front", release(71, 71, NEW_IN_MIDDLE, changes=[new_pointer("bind_all")]), 0,
     ["verbs_context has 1 pointers in front of query_port, and had 0", "UIW_CONTEXT_GROWTH(71, 1)"], []),
    ("verbs_context grows behind", release(71, 71, changes=[("  size_t sz;", "  size_t sz;\n  int more;")]), 1,
     ["by hand: struct verbs_context from query_port on (libibverbs/verbs.h) changed: new: 'int more' behind "
      "'size_t sz'"],
     ["add to"]),
    ("verbs_context grows by what is no pointer",
     release(71, 71, changes=[("  // new ones stand here\n", "  int x;\n")]), 2,
     ["'int x' in front of query_port in struct verbs_context is no function pointer"], ["add to"]),
    ("verbs_device grows", release(71, 71, changes=[("*ops; }", "*ops; int more; }")]), 1,
     ["by hand: struct verbs_device (libibverbs/driver.h) changed: new: 'int more' behind "
      "'const struct verbs_device_ops* ops'"], ["add to"]),
    ("members change places", release(71, 71, changes=[("struct ibv_mr ibv_mr; int access;",
                                                        "int access; struct ibv_mr ibv_mr;")]), 1,
     ["by hand: struct verbs_mr (libibverbs/driver.h) changed: the order: 'int access' stands where "
      "'struct ibv_mr ibv_mr' was"], ["add to"]),
    ("ibv_qp_ex grows", release(71, 71, changes=[("*qp); };", "*qp); void (*wr_more)(struct ibv_qp_ex *qp); };")]), 1,
     ["by hand: struct ibv_qp_ex (libibverbs/verbs.h) changed: new: 'void (*wr_more)(struct ibv_qp_ex*)' behind "
      "'void (*wr_abort)(struct ibv_qp_ex*)'"], ["add to"]),
    ("ibv_port_attr grows at its end",
     release(71, 70, changes=[("uint16_t flags; }", "uint16_t flags; uint32_t speed; }")]), 0,
     ["struct ibv_port_attr has grown at its end, which the plugin leaves alone: uint32_t speed"], ["add to"]),
    ("ibv_port_attr grows at its beginning", release(71, 70, changes=[("{ int state;", "{ int more; int state;")]), 1,
     ["by hand: struct ibv_port_attr (libibverbs/verbs.h) changed not only at its end"], ["add to"]),
    ("a structure of the kernel grows", release(71, 71, changes=[("{ __u32 fd; }", "{ __u32 fd; __u32 more; }")]), 1,
     ["by hand: struct ib_uverbs_create_comp_channel_resp (kernel-headers/rdma/ib_user_verbs.h) changed"], ["add to"]),
    ("an enumerator moves", release(71, 71, changes=[("IBV_MR_TYPE_IMPORTED_MR, ", "")]), 1,
     ["by hand: IBV_MR_TYPE_DMABUF_MR (libibverbs/driver.h) changed"], ["add to"]),
    ("a private symbol is gone", release(71, 71, private=PRIVATE[:2] + PRIVATE[3:]), 1,
     ["by hand: private symbols (libibverbs/libibverbs.map.in) changed: gone: 'verbs_set_ops'"], ["add to"]),
    ("a private function has another parameter",
     release(71, 71, changes=[("int cmd_fd);", "int cmd_fd, int flags);")]), 1,
     ["by hand: _verbs_init_and_alloc_context (libibverbs/driver.h) changed"], ["add to"]),
    ("a new rdma_cm command", release(71, 70, changes=[("_DESTROY_ID ", "_DESTROY_ID, RDMA_USER_CM_CMD_FLY ")]), 0,
     ["new rdma_cm commands", ": FLY"], ["add to"]),
    ("the number goes back", release(71, 69), 1, ["by hand: the number of the private ABI went from 70 back to 69"],
     ["add to"]),
    ("a release is left out", release(72, 72), 1, ["by hand: releases 71 to 71 are between these two"], ["add to"]),
    ("the table does not end", release(71, 71, changes=[("};\nvoid verbs_register", "\nvoid verbs_register")]), 2,
     ["struct verbs_context_ops"], ["add to"]),
    ("a member of the table is no pointer", release(71, 71, [*OPERATIONS, "int zone"]), 2,
     ["'int zone' in struct verbs_context_ops is no function pointer"], ["add to"]),
    ("there is no table", release(71, 71, changes=[("struct verbs_context_ops {", "struct other {")]), 2,
     ["libibverbs/driver.h does not have struct verbs_context_ops"], ["add to"]),
    ("there is no number", release(71, 71, changes=[("IBVERBS_PABI_VERSION \"71", "ELSE \"71")]), 2,
     ["CMakeLists.txt does not say the number of the private ABI"], ["add to"]),
]


class Runner:
    def __init__(self, script, directory):
        self.script, self.directory, self.faults, self.count = script, directory, 0, 0
        self.list = directory / "list.def"
        self.old = self.tree("old", release(70, 70))

    def tree(self, name, files):
        for path, text in files.items():
            (self.directory / name / path).parent.mkdir(parents=True, exist_ok=True)
            (self.directory / name / path).write_text(text)
        return self.directory / name

    def expect(self, title, arguments, status, wanted, unwanted=()):
        self.count += 1
        run = subprocess.run([sys.executable, "-B", self.script, "--list", self.list, *arguments], capture_output=True,
                             text=True)
        output = run.stdout + run.stderr
        faults = [f"the exit status is {run.returncode}, not {status}"] if run.returncode != status else []
        faults += [f"it does not print: {text}" for text in wanted if text not in output]
        faults += [f"it prints: {text}" for text in unwanted if text in output]
        for fault in faults:
            print(f"{title}: {fault}")
        if faults:
            self.faults += 1
            print(output)

    def check(self, title, good):
        self.count += 1
        if not good:
            self.faults += 1
            print(f"{title}: not so")


def written(runner):
    """What --write adds is what the next run knows; where there is something to do by hand it writes nothing."""
    new = runner.tree("written", release(71, 70, NEW_IN_MIDDLE, ["ibv_bind_all"], changes=[new_pointer("bind_all")]))
    runner.list.write_text(LIST)
    runner.expect("written", ["--write", runner.old, new], 0, ["written: "])
    rows = re.findall(r"^UIW_.*", runner.list.read_text(), re.M)
    runner.check("the lines stand where they belong", rows == [
        "UIW_PRIVATE_ABI(70, 70)", "UIW_RELEASE_WITHIN_ABI(70, 71, ibv_bind_all)", "UIW_CONTEXT_GROWTH(71, 1)",
        "UIW_OPERATION(advise_mr, 39)", "UIW_OPERATION(alloc_pd, 39)", "UIW_OPERATION(bind_all, 71)",
        "UIW_OPERATION(poll_cq, 39)", "UIW_OPERATION(unimport_pd, 39)"])
    runner.expect("written before", [runner.old, new], 0, ["list.def has what changed"], ["add to"])
    runner.expect("checked", ["--check", runner.old, new], 0, ["as releases.def says"])
    other = runner.tree("other", release(71, 70, [*OPERATIONS, "int (*zap_qp)(struct ibv_qp *qp)"], ["ibv_bind_all"]))
    runner.expect("checked, and different", ["--check", other], 1,
                  ["pointers in front of query_port", "the operations differ: bind_all, zap_qp"])
    unlike = runner.tree("unlike", release(71, 70, NEW_IN_MIDDLE, changes=[new_pointer("bind_all")]))
    runner.expect("checked, without the function", ["--check", unlike], 1,
                  ["ibv_bind_all does not distinguish it from release 71"])
    renamed = [operation.replace("bind_all", "bind_some") for operation in NEW_IN_MIDDLE]
    later = runner.tree("later", release(71, 70, renamed, ["ibv_bind_all"], changes=[new_pointer("bind_some")]))
    runner.expect("an operation that was entered too early", ["--write", runner.old, later], 1,
                  ["by hand: list.def would still be wrong: the operations differ: bind_all"], ["add to"])
    before = runner.list.read_text()
    gone = runner.tree("gone", release(71, 71, OPERATIONS[:3]))
    runner.expect("by hand, with --write", ["--write", runner.old, gone], 1, ["Nothing was written"])
    runner.check("nothing is written", runner.list.read_text() == before)


def tagged(runner):
    """Releases of a git repository, by their tags."""
    repository = runner.directory / "repository"

    def git(*arguments):
        subprocess.run(["git", "-c", "user.name=test", "-c", "user.email=test@example.org", "-C", repository,
                        *arguments], check=True, capture_output=True)

    for number in (70, 71):
        runner.tree("repository", release(number, number))
        if number == 70:
            git("init", "--quiet")
        git("add", ".")
        git("commit", "--quiet", "--message", "a release")
        git("tag", f"v{number}.0")
    runner.list.write_text(LIST)
    runner.expect("the release before is found by its tag", [f"{repository}:v71.0"], 0, ["UIW_PRIVATE_ABI(71, 71)"])
    runner.expect("no work tree", [f"{repository}/.git:v70.0", f"{repository}/.git:v71.0"], 0,
                  ["UIW_PRIVATE_ABI(71, 71)"])
    runner.expect("unknown tag", [f"{repository}:v72.0"], 2, [f"{repository}:v72.0: neither a directory nor GIT:TAG"])
    runner.expect("no tag of the release before", [f"{repository}:v70.0"], 2,
                  [":v69.0: neither a directory nor GIT:TAG"])


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    with tempfile.TemporaryDirectory() as directory:
        runner = Runner(root / "tools/new-rdma-core", pathlib.Path(directory))
        for number, (title, files, status, wanted, unwanted) in enumerate(CASES):
            runner.list.write_text(LIST)
            runner.expect(title, [runner.old, runner.tree(str(number), files)], status, wanted, unwanted)
            runner.check(f"{title}: without --write nothing is written", runner.list.read_text() == LIST)
        written(runner)
        if shutil.which("git"):
            tagged(runner)
        else:
            print("releases by their tags are left out: there is no git")
        unsupported = runner.tree("unsupported", release(60, 60))
        runner.expect("a release that uiw does not support", [unsupported, runner.old], 2,
                      ["uiw does not support this release"])
        runner.expect("a directory alone", [runner.old], 2, ["the release before it has to be named, too"])
        runner.expect("no tree", [], 2, ["usage: "])
        print(f"{runner.faults} of {runner.count} checks fail" if runner.faults else f"{runner.count} checks pass")
        return 1 if runner.faults else 0


if __name__ == "__main__":
    sys.exit(main())
