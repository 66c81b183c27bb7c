# SPDX-License-Identifier: MIT
"""The packages say what the build says: one version, and each file that cmake --install puts somewhere in one package of
debian/ and in the same package of redhat/uiw.spec.

usage: python3 tests/tree/packages.py BUILD-DIRECTORY [SOURCE-DIRECTORY]
"""
import fnmatch
import os
import pathlib
import re
import subprocess
import sys
import tempfile

# The packages of redhat/uiw.spec, as its %files lines name them, and those of debian/ with the same files.
PACKAGES = {"": "uiw", "libs": "libuiw1", "devel": "libuiw-dev", "-n libibverbs-provider-%{name}": "ibverbs-provider-uiw"}
# Where the lists of files look for what the build has settings for; ARCH is a folder in debian/ and none in the spec.
SETTINGS = {"UIW_PROVIDER_DIR": "lib/ARCH/libibverbs", "UIW_ZSH_COMPLETION_DIR": "share/zsh/site-functions",
            "CMAKE_INSTALL_LIBDIR": "lib/ARCH"}
MACROS = {"_bindir": "usr/bin", "_libdir": "usr/lib/ARCH", "_libexecdir": "usr/libexec", "_includedir": "usr/include",
          "_datadir": "usr/share", "_mandir": "usr/share/man", "_sysconfdir": "etc",
          "bash_completions_dir": "usr/share/bash-completion/completions",
          "fish_completions_dir": "usr/share/fish/vendor_completions.d",
          "zsh_completions_dir": "usr/share/zsh/site-functions"}


def only(pattern, text):
    return re.search(pattern, text, re.M).group(1)


def version_faults(root):
    build = only(r"^project\(uiw VERSION (\S+)", (root / "CMakeLists.txt").read_text())
    debian = only(r"\Auiw \(([^)-]+)", (root / "debian/changelog").read_text())
    spec = (root / "redhat/uiw.spec").read_text()
    readme = only(r"--prefix=uiw-([^/]+)/ -o uiw-\1\.tar\.gz", (root / "README.md").read_text())
    for place, version in (("debian/changelog", debian), ("README.md", readme), ("redhat/uiw.spec", only(r"^Version: *(\S+)", spec)),
                           ("%changelog of redhat/uiw.spec", only(r"^%changelog\n\*.* - ([^-\s]+)", spec))):
        if version != build:
            yield f"{place} has version {version}, and CMakeLists.txt {build}"


def debian_lists(root):
    """Package: the patterns of its files."""
    return {path.stem: [line.split()[0] for line in path.read_text().splitlines() if line and line[0] != "#"]
            for path in sorted(root.glob("debian/*.install"))}


def spec_lists(root):
    """The same of the spec, by Debian's names."""
    lists = {}
    text = (root / "redhat/uiw.spec").read_text()
    for name, lines in re.findall(r"^%files *(.*)\n((?:(?!%(?:files|changelog)).*\n)*)", text, re.M):
        entries = [re.sub(r"^%config(\(\w+\))? ", "", line) for line in lines.splitlines() if line]
        entries = [line for line in entries if not line.startswith(("#", "%doc ", "%license ", "%dir "))]
        lists[PACKAGES[name]] = [re.sub(r"%{(\w+)}", lambda macro: MACROS[macro.group(1)], line) for line in entries]
    return lists


def covers(pattern, path):
    """Whether a pattern is that of a file or of a folder around it."""
    parts, wanted = path.split("/"), pattern.strip("/").split("/")
    return len(wanted) <= len(parts) and all(map(fnmatch.fnmatchcase, parts, wanted))


def installed(build):
    """The files of cmake --install under /usr, where they are without settings."""
    cache = dict(re.findall(r"^(\w+):\w+=(.*)$", (build / "CMakeCache.txt").read_text(), re.M))
    with tempfile.TemporaryDirectory(prefix="uiw-packages-") as folder:
        subprocess.run(["cmake", "--install", build, "--prefix", "/usr"], check=True, stdout=subprocess.DEVNULL,
                       env={**os.environ, "DESTDIR": folder})
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.is_dir() and not path.is_symlink():
                continue
            name = path.relative_to(folder).as_posix()
            for setting, usual in SETTINGS.items():
                place = (pathlib.PurePosixPath("/usr") / cache.get(setting, usual)).as_posix()[1:]
                if name.startswith(place + "/"):
                    name = f"usr/{usual}{name[len(place):]}"
                    break
            yield name


def list_faults(files, where, lists):
    for file in files:
        owners = [package for package, patterns in lists.items() if any(covers(pattern, file) for pattern in patterns)]
        if len(owners) != 1:
            yield f"{file}: in {where} it is in {' and '.join(owners) or 'no package'}"
    for package, patterns in lists.items():
        for pattern in patterns:
            if not any(covers(pattern, file) for file in files):
                yield f"{pattern}: in {where} it is in {package}, and cmake --install does not install it"


def cut_faults(files, debian, spec):
    for file in files:
        owners = [{package for package, patterns in lists.items() if any(covers(pattern, file) for pattern in patterns)}
                  for lists in (debian, spec)]
        if owners[0] != owners[1]:
            yield f"{file}: debian/ has it in {owners[0]}, and redhat/uiw.spec in the package that is {owners[1]} there"


def main():
    build = pathlib.Path(sys.argv[1])
    root = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parents[2]).resolve()
    files = list(installed(build))
    debian, spec = debian_lists(root), spec_lists(root)
    faults = [*version_faults(root), *list_faults(files, "debian/", debian), *list_faults(files, "redhat/uiw.spec", spec)]
    faults += cut_faults(files, debian, spec)
    for fault in faults:
        print(fault)
    print(f"{len(faults)} faults" if faults else f"{len(files)} files are in one package each, of one version")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
