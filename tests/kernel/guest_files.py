# SPDX-License-Identifier: MIT
"""What guests are made of: Debian's kernel with its modules, siw, which Debian has in source only, and an initramfs.

All of it comes from Debian packages, which are downloaded and unpacked in a folder, and stays there for later runs. None
is installed. Kernels of other releases than this host's come from the same archive."""

import hashlib
import os
import pathlib
import re
import shutil
import subprocess

HERE = pathlib.Path(__file__).resolve().parent
COMMON = ("virtio_pci", "virtio_net", "9p", "9pnet_virtio")
RDMA = ("crc32c_generic", "crc32_generic", "libcrc32c", "veth", "sch_netem", "tcp_diag", "rdma_rxe", "rdma_ucm",
        "ib_uverbs", "rdma_cm")
MEDIA = ("nd_e820", "nd_pmem", "ext4")


def call(*command, **options):
    done = subprocess.run([str(one) for one in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **options)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))} has failed:\n{done.stdout[-3000:]}")
    return done.stdout


def archive(release, folder):
    """What apt is told to take packages of that release instead of this host's: from the archive that this host uses."""
    folder.mkdir(parents=True, exist_ok=True)
    address = call("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages").split()[0]
    sources = folder / "sources.list"
    sources.write_text(f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {address} {release} main\n")
    (folder / "lists").mkdir(exist_ok=True)
    (folder / "cache").mkdir(exist_ok=True)
    options = [word for name, value in (("Etc::SourceList", sources), ("Etc::SourceParts", "/dev/null"),
                                        ("State::Lists", folder / "lists"), ("Cache", folder / "cache"))
               for word in ("-o", f"Dir::{name}={value}")] + ["-o", "APT::Sandbox::User=root"]
    call("apt-get", "-q", *options, "update")
    return options


def dependency(package, start, options=()):
    """The package of this name's start on which a package without contents depends."""
    for line in call("apt-cache", *options, "depends", package).splitlines():
        name = line.split()[-1]
        if line.strip().startswith("Depends:") and name.startswith(start):
            return name
    raise RuntimeError(f"apt-cache: {package} depends on no {start}*")


class Files:
    """With the kernel of a release of Debian; without one it is this host's, and has siw beside it."""

    def __init__(self, folder, release=None):
        self.folder = pathlib.Path(folder)
        self.root = self.folder / "root"  # the packages, unpacked
        self.initramfs = self.folder / "initramfs"
        self.siw = None if release else self.folder / "siw" / "siw.ko"
        self.modules = COMMON + (MEDIA if release else RDMA)
        self.release = release
        of = release or dependency("linux-image-amd64", "linux-image-")
        how = hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()[:12]  # a change of it makes all anew
        self.done = self.folder / f"made-{of}-{how}"

    @property
    def kernel(self):
        return next(self.root.glob("boot/vmlinuz-*"))

    @property
    def version(self):
        return self.kernel.name.removeprefix("vmlinuz-")

    def make(self):
        """Everything that is not there yet; the initramfs each time."""
        if not self.done.exists():
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            self.unpack()
            if self.siw:
                self.build_siw()
            self.done.touch()
        self.make_initramfs()

    def unpack(self):
        options = archive(self.release, self.folder / "apt") if self.release else ["-o", "APT::Sandbox::User=root"]
        image = dependency("linux-image-amd64", "linux-image-", options)
        packages = [image]
        if self.siw:
            version = image.removeprefix("linux-image-")
            short = version.split("-")[0].rsplit(".", 1)[0]  # 6.1 of 6.1.0-57-amd64
            common = version.removesuffix("amd64") + "common"
            packages += [f"linux-headers-{version}", f"linux-headers-{common}", f"linux-kbuild-{short}",
                         f"linux-source-{short}"]
        archives = self.folder / "archives"
        archives.mkdir()
        call("apt-get", "-q", *options, "download", *packages, cwd=archives)
        for package in archives.iterdir():
            call("dpkg-deb", "-x", package, self.root)
        shutil.rmtree(archives)
        shutil.rmtree(self.folder / "apt", ignore_errors=True)
        if not (self.root / "lib").exists():
            (self.root / "lib").symlink_to("usr/lib")  # as in a system, since Debian 13
        call("depmod", "-b", self.root, self.version)

    def build_siw(self):
        """What siw has as constants, for example whether it asks for a CRC, becomes parameters of the module."""
        source = next(self.root.glob("usr/src/linux-source-*.tar.xz"))
        call("tar", "-xf", source, "--strip-components=4", "--wildcards", "*/drivers/infiniband/sw/siw", cwd=self.folder)
        source.unlink()
        main, header = self.siw.parent / "siw_main.c", self.siw.parent / "siw.h"
        constant = re.compile(r"^const bool (\w+)", re.MULTILINE)
        text = main.read_text()
        parameters = [(name, "bool") for name in constant.findall(text)] + [("mpa_version", "byte")]
        main.write_text(constant.sub(r"bool \1", text) +
                        "".join(f"module_param({name}, {kind}, 0644);\n" for name, kind in parameters))
        header.write_text(header.read_text().replace("extern const bool", "extern bool"))
        headers = self.root / "usr" / "src" / f"linux-headers-{self.version}"
        makefile = headers / "Makefile"
        makefile.write_text(makefile.read_text().replace("/usr/src/", f"{headers.parent}/"))
        call("make", "-C", headers, f"M={self.siw.parent}", "CONFIG_RDMA_SIW=m", "CC=gcc", "modules")
        call("strip", "--strip-debug", self.siw)

    def make_initramfs(self):
        shutil.rmtree(self.initramfs, ignore_errors=True)
        for folder in ("bin", "modules", "dev", "host"):
            (self.initramfs / folder).mkdir(parents=True)
        shutil.copy(shutil.which("busybox"), self.initramfs / "bin")
        shutil.copy(HERE / "init", self.initramfs)
        os.chmod(self.initramfs / "init", 0o755)
        order = []
        for module in self.modules:
            shown = call("modprobe", "-d", self.root, "-S", self.version, "--show-depends", module)
            order += [line.split()[1] for line in shown.splitlines() if line.startswith("insmod")]
        order = [pathlib.Path(path) for path in dict.fromkeys(order)] + ([self.siw] if self.siw else [])
        for path in order:
            shutil.copy(path, self.initramfs / "modules")
            if path.suffix == ".xz":
                call("xz", "-d", self.initramfs / "modules" / path.name)
        (self.initramfs / "order").write_text("".join(f"{path.name.removesuffix('.xz')}\n" for path in order))
        names = "\n".join(str(path.relative_to(self.initramfs)) for path in sorted(self.initramfs.rglob("*")))
        with open(self.folder / "initramfs.cpio", "wb") as archive:
            subprocess.run(["cpio", "--quiet", "-o", "-H", "newc"], input=names.encode(), stdout=archive, check=True,
                           cwd=self.initramfs)
