//! Runs in a cgroup with little memory, as in a container. The default budget must be a fraction of the cgroup's
//! limit.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::place::{Place, ran, skip};

const LIMIT_BYTES: u64 = 300_000_000;
/// The limit as messages print it. The system rounds it to whole pages.
const LIMIT_IN_WORDS: &str = "300.0 MB of this cgroup";

/// A cgroup with a memory limit. It is removed when this is dropped.
struct Cgroup {
    folder: PathBuf,
    /// File that counts the processes that were killed for lack of memory.
    killed: &'static str,
}

impl Cgroup {
    /// Creates a cgroup of the version that this system has. Returns `None` unless the user is root.
    fn new() -> Option<Self> {
        let made = |at: &str, limit: &str, killed| {
            let folder = Path::new(at).join(format!("adjoin-test-{}", std::process::id()));
            fs::create_dir(&folder).ok()?;
            let cgroup = Self { folder, killed };
            fs::write(cgroup.folder.join(limit), LIMIT_BYTES.to_string()).ok().map(|()| cgroup)
        };
        made("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control")
            .or_else(|| made("/sys/fs/cgroup", "memory.max", "memory.events"))
    }

    /// Returns a command that enters the cgroup and runs `adjoin` with these arguments.
    fn run(&self, place: &Place, arguments: &[&str]) -> Command {
        let enter = "echo $$ > \"$0\"/cgroup.procs && exec \"$@\"";
        let inner = place.command(arguments);
        let mut command = Command::new("sh");
        command.args(["-c", enter]).arg(&self.folder).arg(inner.get_program()).args(arguments);
        command.current_dir(inner.get_current_dir().unwrap()).env("TMPDIR", inner.get_current_dir().unwrap());
        command
    }

    /// Returns the number of processes of the cgroup that were killed for lack of memory, if the system counts them.
    fn killed(&self) -> u64 {
        let text = fs::read_to_string(self.folder.join(self.killed)).unwrap();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.map_or(0, |count| count.trim().parse().unwrap())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.folder);
    }
}

#[test]
fn joins_a_set_larger_than_the_cgroup_memory() {
    let Some(cgroup) = Cgroup::new() else { return skip("root", "no cgroup with a limit of memory can be made here") };
    let place = Place::on_disk();
    place.done("gen --rows 20000 --dimensions 4000 -o set.fbin --quiet");
    assert!(place.path("set.fbin").metadata().unwrap().len() > LIMIT_BYTES);
    let done =
        ran(cgroup
            .run(&place, &"join set.fbin --eps 0.05 -o pairs.csv --stats stats.json".split(' ').collect::<Vec<_>>()));
    assert_eq!((done.code, cgroup.killed()), (Some(0), 0), "{}", done.said);
    assert!(done.said.contains(&format!("half of the {LIMIT_IN_WORDS}")), "{}", done.said);
    let told: serde_json::Value = serde_json::from_str(&place.text("stats.json")).unwrap();
    let memory = &told["memory"];
    assert_eq!(memory["budget_bytes"].as_u64().unwrap(), memory["share_of_bytes"].as_u64().unwrap() / 2);
    assert!(memory["kept"] == true && memory["share_of"] == "cgroup" && memory["share"] == 0.5, "{memory}");
    let share = ran(cgroup.run(&place, &["build", "set.fbin", "-o", "other", "--memory", "70%"]));
    assert!(share.code == Some(0) && share.said.contains(&format!("70 % of the {LIMIT_IN_WORDS}")), "{}", share.said);
    // If the budget is given as a size, messages do not explain it.
    let given = ran(cgroup.run(&place, &["build", "set.fbin", "-o", "store", "--memory", "100MB"]));
    assert!(given.code == Some(0) && given.said.ends_with("; the budget is 100.0 MB\n"), "{}", given.said);
    let too_much = ran(cgroup.run(&place, &["build", "set.fbin", "-o", "fourth", "--memory", "310MB"]));
    let words = format!("the budget of 310.0 MB is more than the {LIMIT_IN_WORDS}, so the run may be killed");
    assert!(too_much.said.contains(&words), "{}", too_much.said);
    let too_little = ran(cgroup.run(&place, &["build", "set.fbin", "-o", "third", "--memory", "1%"]));
    let words = "the budget is 3.0 MB; give --memory ";
    assert!(too_little.code == Some(2) && too_little.said.contains(words), "{}", too_little.said);
}
