//! What the system says of this process's memory.

/// The most memory that this process ever had resident, in bytes; 0 where the system does not say.
pub fn peak_resident_bytes() -> u64 {
    status_bytes("VmHWM:")
}

/// The memory that this process has resident now, in bytes; 0 where the system does not say.
pub fn current_resident_bytes() -> u64 {
    status_bytes("VmRSS:")
}

fn status_bytes(key: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_is_no_less_than_the_present() {
        let current = current_resident_bytes();
        assert!(current > 0 && peak_resident_bytes() >= current);
    }
}
