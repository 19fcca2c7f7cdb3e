use super::*;
use crate::config::Config;
use crate::device::SECOND;

fn device(changes: &[(&str, f64)]) -> Device {
    let mut config = Config::preset("ndsearch").unwrap();
    changes.iter().for_each(|(name, value)| config.set(name, *value, "test").unwrap());
    Device::new(&config).unwrap()
}

fn page(lun: u32, plane: u32, page: u32, block: u32) -> PageRead {
    let address = PageAddress { lun, page, block, plane };
    PageRead { address, in_bytes: 0, page_bytes: 16_384, out_bytes: 0, compute: 0 }
}

fn run(device: &Device, place: Place, multi_plane: bool, pages: &[PageRead]) -> (Ps, Counts) {
    let mut machine = Machine::new(device, Usage { place, multi_plane, units: 1 }, Timeline::default());
    (0..).zip(pages).for_each(|(token, &page)| machine.submit(0, token, [page]));
    let (mut end, mut ended) = (0, 0);
    while let Some((time, _)) = machine.next_end() {
        (end, ended) = (time, ended + 1);
    }
    assert_eq!(ended, pages.len());
    (end, machine.counts)
}

#[test]
fn planes_of_a_lun_sense_together_if_page_numbers_match() {
    let device = device(&[("ecc.hard_fails", 0.0), ("ecc.hard", 0.0), ("timing.command", 0.0)]);
    let same_number = [page(0, 0, 0, 9), page(0, 0, 7, 3), page(0, 1, 7, 5)];
    let (end, counts) = run(&device, Place::Lun, true, &same_number);
    assert_eq!((end, counts.senses, counts.page_reads), (2 * device.read, 2, 3));
    let (end, counts) = run(&device, Place::Lun, false, &same_number);
    assert_eq!((end, counts.senses), (3 * device.read, 3));
    let other_number = [page(0, 0, 7, 3), page(0, 1, 8, 3)];
    assert_eq!(run(&device, Place::Lun, true, &other_number).1.senses, 2);
    let other_luns = [page(0, 0, 7, 3), page(1, 1, 8, 3)];
    assert_eq!(run(&device, Place::Lun, true, &other_luns).0, device.read);
}

#[test]
fn a_page_that_is_in_its_buffer_is_not_sensed_again() {
    let device = device(&[("ecc.hard_fails", 0.0)]);
    let pages = [page(0, 0, 7, 3), page(0, 0, 7, 3), page(0, 0, 8, 3), page(0, 0, 7, 3)];
    let (_, counts) = run(&device, Place::Lun, true, &pages);
    assert_eq!((counts.page_reads, counts.buffer_hits), (3, 1));
    // A commercial disk senses the page again.
    assert_eq!(run(&device, Place::Host, true, &pages).1.page_reads, 4);
}

#[test]
fn a_page_with_uncorrectable_errors_is_decoded_by_the_controller() {
    let whole = device(&[("ecc.hard_fails", 0.0), ("ecc.hard", 0.0)]);
    let failing = device(&[("ecc.hard_fails", 1.0), ("ecc.hard", 0.0), ("ecc.spread", 0.0)]);
    let (end, _) = run(&whole, Place::Lun, true, &[page(0, 0, 0, 0)]);
    let (later, counts) = run(&failing, Place::Lun, true, &[page(0, 0, 0, 0)]);
    let moved = failing.channel.time(16_384);
    assert_eq!((later - end, counts.soft_decodes), (2 * moved + failing.soft, 1));
    assert_eq!(counts.channel_bytes, 2 * 16_384);
    let (plain, _) = run(&whole, Place::Channel, true, &[page(0, 0, 0, 0)]);
    let (later, _) = run(&failing, Place::Channel, true, &[page(0, 0, 0, 0)]);
    assert_eq!(later - plain, failing.soft);
}

/// Compares the speedup of LUNs over chips with a simple model: all planes of a chip sense at the same time, but a
/// chip transfers one page at a time.
#[test]
fn the_speedup_of_luns_over_chips_matches_the_model() {
    for read_us in [20.0, 40.0, 77.5] {
        let device = device(&[
            ("timing.read", read_us),
            ("timing.command", 0.0),
            ("ecc.hard", 0.0),
            ("ecc.hard_fails", 0.0),
            ("geometry.channels", 1.0),
            ("geometry.chips_per_channel", 1.0),
        ]);
        let all = (0..2_000)
            .flat_map(|number| (0..4).map(move |plane| page(plane / 2, plane % 2, number % 128, number / 128)));
        let pages: Vec<PageRead> = all.collect();
        let [luns, chips] = [Place::Lun, Place::Chip].map(|place| run(&device, place, true, &pages).0 as f64);
        let sent = device.channel.time(16_384) as f64 / 1e6;
        let gain = (4.0 * sent).max(read_us) / read_us;
        assert!((chips / luns / gain - 1.0).abs() < 0.35, "{read_us}: {} {gain}", chips / luns);
        assert!(luns < SECOND as f64);
    }
}

#[test]
fn waiting_tasks_can_be_canceled_and_started_ones_end() {
    let device = device(&[]);
    let mut machine =
        Machine::new(&device, Usage { place: Place::Lun, multi_plane: true, units: 1 }, Timeline::default());
    (0..5).for_each(|token| machine.submit(0, token, [page(0, 0, token as u32, 0)]));
    assert_eq!(machine.next_end_by(0), None);
    assert_eq!(machine.give_up_waiting(), 4);
    assert_eq!(machine.next_end().map(|end| end.1), Some(0));
    assert_eq!(machine.next_end(), None);
    machine.submit(device.read * 3, 9, [page(0, 0, 1, 0)]);
    assert_eq!(machine.next_end().map(|end| end.1), Some(9));
}
