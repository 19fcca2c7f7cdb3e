//! Memory available to this process. It is the memory of the machine, or less if a cgroup (version 1 or 2) limits it.
//! Containers, batch systems and services set such limits.

use std::path::{Component, Path, PathBuf};

/// Values of at least this size mean that there is no limit. Cgroups of version 1 report no limit as the largest
/// number of whole pages.
const NO_LIMIT_BYTES: u64 = 1 << 62;

/// The most memory that a process may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryLimit {
    /// Limit in bytes.
    pub bytes: u64,
    /// Source of the limit.
    pub by: LimitedBy,
}

/// Source of a memory limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitedBy {
    /// The memory of the machine.
    Machine,
    /// The limit of a cgroup.
    Cgroup,
}

/// Returns the smallest of these: the machine's memory, the limit of this process's cgroup, and the limits of that
/// cgroup's ancestors. Returns `None` if the system reports none of them.
pub fn memory_limit() -> Option<MemoryLimit> {
    limit_by(|path| std::fs::read_to_string(path).ok())
}

/// Determines the limit from the files that `read` reads.
fn limit_by(read: impl Fn(&Path) -> Option<String>) -> Option<MemoryLimit> {
    let text_of = |path: &str| read(Path::new(path)).unwrap_or_default();
    let machine = machine_bytes(&text_of("/proc/meminfo")).or_else(reported_bytes);
    let machine = machine.map(|bytes| MemoryLimit { bytes, by: LimitedBy::Machine });
    let files = limit_files(&text_of("/proc/self/cgroup"), &text_of("/proc/self/mountinfo"));
    let cgroups = files.iter().filter_map(|file| limit_bytes(&read(file)?));
    let cgroups = cgroups.map(|bytes| MemoryLimit { bytes, by: LimitedBy::Cgroup });
    machine.into_iter().chain(cgroups).min_by_key(|limit| limit.bytes)
}

/// Parses the machine's memory from `/proc/meminfo`.
fn machine_bytes(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Returns the machine's memory in bytes, from a call of the system.
#[cfg(target_vendor = "apple")]
fn reported_bytes() -> Option<u64> {
    let mut bytes = 0_u64;
    let mut len = size_of::<u64>();
    // SAFETY: the name ends in a zero byte, and `len` is the size of the integer that `bytes` points to.
    let done = unsafe {
        libc::sysctlbyname(c"hw.memsize".as_ptr(), (&raw mut bytes).cast(), &raw mut len, std::ptr::null_mut(), 0)
    };
    (done == 0 && bytes > 0).then_some(bytes)
}

/// Returns `None`: this system reports its memory in a file, if at all.
#[cfg(not(target_vendor = "apple"))]
fn reported_bytes() -> Option<u64> {
    None
}

/// Parses the limit in a file of a cgroup. Returns `None` if the file sets no limit; version 2 writes `max` then.
fn limit_bytes(text: &str) -> Option<u64> {
    text.trim().parse().ok().filter(|bytes| *bytes < NO_LIMIT_BYTES)
}

/// Returns the paths of the limit files of a process's cgroups and all their ancestors. `cgroups` and `mounts` are
/// the contents of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn limit_files(cgroups: &str, mounts: &str) -> Vec<PathBuf> {
    let files = mounts.lines().filter_map(Mount::parse).flat_map(|mount| {
        let folder = cgroups.lines().find_map(|line| mount.folder_of(line));
        let folders: Vec<&Path> = folder.iter().flat_map(|folder| folder.ancestors()).collect();
        let inside = folders.into_iter().take_while(|folder| folder.starts_with(mount.at));
        inside.map(|folder| folder.join(mount.version.limit_file())).collect::<Vec<_>>()
    });
    files.collect()
}

/// Versions of cgroups; both may be in use at the same time.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Version {
    One,
    Two,
}

impl Version {
    fn limit_file(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }
}

/// A mounted cgroup hierarchy that limits memory.
struct Mount<'a> {
    version: Version,
    /// The cgroup that is mounted at `at`. In a container, it may be the container's own cgroup.
    root: &'a str,
    at: &'a str,
}

impl<'a> Mount<'a> {
    /// Parses a line of `/proc/self/mountinfo`. Returns `None` if the mount is no cgroup hierarchy that limits
    /// memory.
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, kind) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, at) = (mount.next()?, mount.next()?);
        let mut kind = kind.split(' ');
        let version = match (kind.next()?, kind.nth(1).unwrap_or_default()) {
            ("cgroup2", _) => Version::Two,
            ("cgroup", options) if options.split(',').any(|option| option == "memory") => Version::One,
            _ => return None,
        };
        Some(Self { version, root, at })
    }

    /// Returns the folder of a process's cgroup in this mount. `line` is a line of `/proc/self/cgroup`. Returns
    /// `None` if the line is about another hierarchy. If the cgroup is outside of the mounted subtree, returns the
    /// root of the mount.
    fn folder_of(&self, line: &str) -> Option<PathBuf> {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        let is_here = match self.version {
            Version::One => controllers.split(',').any(|controller| controller == "memory"),
            Version::Two => number == "0" && controllers.is_empty(),
        };
        let below = Path::new(path).strip_prefix(self.root).ok();
        let is_plain = |path: &&Path| path.components().all(|part| matches!(part, Component::Normal(_)));
        let below = below.filter(is_plain).unwrap_or(Path::new(""));
        is_here.then(|| Path::new(self.at).join(below))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal:       24683496 kB\nMemFree:        19482964 kB\nMemAvailable:   23358280 kB\n";
    const MACHINE: MemoryLimit = MemoryLimit { bytes: 24_683_496 * 1024, by: LimitedBy::Machine };

    const CGROUP_2: &str = "0::/user.slice/user-1000.slice/session-3.scope\n";
    const MOUNTS_2: &str = "\
24 29 0:22 / /proc rw,nosuid,nodev,noexec,relatime shared:13 - proc proc rw
29 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
35 34 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot
";
    /// Cgroups of a machine that uses both versions. Version 2 has no controllers there.
    const CGROUP_BOTH: &str = "\
12:cpuset:/
11:cpu,cpuacct:/user.slice
9:name=systemd:/user.slice/user-0.slice/session-2.scope
4:memory:/user.slice/user-0.slice/session-2.scope
0::/user.slice/user-0.slice/session-2.scope
";
    const MOUNTS_BOTH: &str = "\
30 22 0:26 / /sys/fs/cgroup ro,nosuid,nodev,noexec shared:9 - tmpfs tmpfs ro,mode=755
31 30 0:27 / /sys/fs/cgroup/unified rw,nosuid,nodev,noexec,relatime shared:10 - cgroup2 cgroup2 rw
33 30 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime shared:15 - cgroup cgroup rw,cpu,cpuacct
36 30 0:33 / /sys/fs/cgroup/memory rw,nosuid,nodev,noexec,relatime shared:18 - cgroup cgroup rw,memory
";
    const NONE_1: &str = "9223372036854771712\n";

    /// Computes the limit of a machine that has `/proc/meminfo` and these files.
    fn limit(files: &[(&str, &str)]) -> Option<MemoryLimit> {
        let files = [("/proc/meminfo", MEMINFO)].into_iter().chain(files.iter().copied());
        let files: std::collections::HashMap<&str, &str> = files.collect();
        limit_by(|path| files.get(path.to_str().unwrap()).map(|text| (*text).to_owned()))
    }

    fn cgroup(bytes: u64) -> Option<MemoryLimit> {
        Some(MemoryLimit { bytes, by: LimitedBy::Cgroup })
    }

    #[test]
    fn the_limit_without_cgroups_is_the_machine_memory() {
        assert_eq!(limit(&[]), Some(MACHINE));
        assert_eq!(limit(&[("/proc/self/cgroup", CGROUP_2), ("/proc/self/mountinfo", MOUNTS_2)]), Some(MACHINE));
        assert_eq!(limit_by(|_| None), None);
    }

    #[test]
    fn the_least_limit_of_nested_cgroups_applies_in_version_2() {
        let of = |own: &'static str, user: &'static str, all: &'static str| {
            limit(&[
                ("/proc/self/cgroup", CGROUP_2),
                ("/proc/self/mountinfo", MOUNTS_2),
                ("/sys/fs/cgroup/user.slice/user-1000.slice/session-3.scope/memory.max", own),
                ("/sys/fs/cgroup/user.slice/user-1000.slice/memory.max", user),
                ("/sys/fs/cgroup/user.slice/memory.max", all),
            ])
        };
        assert_eq!(of("max\n", "max\n", "max\n"), Some(MACHINE));
        assert_eq!(of("314572800\n", "max\n", "max\n"), cgroup(314_572_800));
        assert_eq!(of("314572800\n", "209715200\n", "max\n"), cgroup(209_715_200));
        assert_eq!(of("max\n", "max\n", "4294967296\n"), cgroup(4 << 30));
        assert_eq!(of("99999999999999\n", "max\n", "max\n"), Some(MACHINE));
    }

    #[test]
    fn the_least_limit_of_nested_cgroups_applies_in_version_1() {
        let of = |own: &'static str, around: &'static str| {
            limit(&[
                ("/proc/self/cgroup", CGROUP_BOTH),
                ("/proc/self/mountinfo", MOUNTS_BOTH),
                ("/sys/fs/cgroup/memory/user.slice/user-0.slice/session-2.scope/memory.limit_in_bytes", own),
                ("/sys/fs/cgroup/memory/user.slice/memory.limit_in_bytes", around),
                ("/sys/fs/cgroup/memory/memory.limit_in_bytes", NONE_1),
            ])
        };
        assert_eq!(of(NONE_1, NONE_1), Some(MACHINE));
        assert_eq!(of("300003328\n", NONE_1), cgroup(300_003_328));
        assert_eq!(of(NONE_1, "1073741824\n"), cgroup(1 << 30));
        assert_eq!(of("2147483648\n", "1073741824\n"), cgroup(1 << 30));
    }

    #[test]
    fn the_least_limit_applies_if_both_cgroup_versions_are_mounted() {
        let of = |one: &'static str, two: &'static str| {
            limit(&[
                ("/proc/self/cgroup", CGROUP_BOTH),
                ("/proc/self/mountinfo", MOUNTS_BOTH),
                ("/sys/fs/cgroup/memory/user.slice/user-0.slice/memory.limit_in_bytes", one),
                ("/sys/fs/cgroup/unified/user.slice/user-0.slice/session-2.scope/memory.max", two),
            ])
        };
        assert_eq!(of("1073741824\n", "314572800\n"), cgroup(314_572_800));
        assert_eq!(of("1073741824\n", "max\n"), cgroup(1 << 30));
    }

    /// With version 1, a container sees its own cgroup as the root of the mount. If it has a cgroup namespace, its
    /// cgroup is `/`.
    #[test]
    fn a_container_uses_its_visible_cgroup_limit() {
        let mounts = "36 30 0:33 /docker/5f2c /sys/fs/cgroup/memory ro,nosuid master:18 - cgroup cgroup rw,memory\n";
        let file = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "536870912\n");
        for own in ["4:memory:/docker/5f2c\n", "4:memory:/\n", "4:memory:/../elsewhere\n"] {
            assert_eq!(limit(&[("/proc/self/cgroup", own), ("/proc/self/mountinfo", mounts), file]), cgroup(512 << 20));
        }
        let inner = ("/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "268435456\n");
        let own = ("/proc/self/cgroup", "4:memory:/docker/5f2c/job\n");
        assert_eq!(limit(&[own, ("/proc/self/mountinfo", mounts), file, inner]), cgroup(256 << 20));
        let (own, file) = (("/proc/self/cgroup", "0::/\n"), ("/sys/fs/cgroup/memory.max", "536870912\n"));
        assert_eq!(limit(&[own, ("/proc/self/mountinfo", MOUNTS_2), file]), cgroup(512 << 20));
        let own = ("/proc/self/cgroup", "0::/../../other\n");
        assert_eq!(limit(&[own, ("/proc/self/mountinfo", MOUNTS_2), file]), cgroup(512 << 20));
    }

    #[test]
    fn invalid_cgroup_files_mean_no_limit() {
        for text in ["", "\n", "-1\n", "12 parsecs", "99999999999999999999999", "max max"] {
            let file = ("/sys/fs/cgroup/user.slice/memory.max", text);
            let files = [("/proc/self/cgroup", CGROUP_2), ("/proc/self/mountinfo", MOUNTS_2), file];
            assert_eq!(limit(&files), Some(MACHINE), "{text}");
        }
        for garbage in ["", ":", "::", "0:\n4:memory\n", "- - -\n1 2 3 - cgroup2\n - cgroup2 x y", "\0\u{fffd}"] {
            for other in [CGROUP_2, MOUNTS_2, garbage] {
                assert_eq!(limit(&[("/proc/self/cgroup", garbage), ("/proc/self/mountinfo", other)]), Some(MACHINE));
                assert_eq!(limit(&[("/proc/self/cgroup", other), ("/proc/self/mountinfo", garbage)]), Some(MACHINE));
            }
        }
        for text in ["", "MemTotal:", "MemTotal: many kB", "MemTotal: 5 MB", "MemTotal: 18446744073709551615 kB"] {
            assert_eq!(machine_bytes(text), None, "{text}");
        }
    }

    #[test]
    fn this_machine_has_a_memory_limit() {
        assert!(memory_limit().is_some_and(|limit| limit.bytes > 1 << 20), "{:?}", memory_limit());
    }
}
