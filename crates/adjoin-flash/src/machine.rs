//! The simulated device. Requests arrive; pages are sensed, transferred, corrected and compared; requests end.
//!
//! A request asks for pages. Each page waits for its LUN, which executes one command at a time. If multi-plane
//! commands are allowed, one command may sense a page in each of several planes. A sensed page stays in the page
//! buffer of its plane until it was compared there or transferred. Until then, the LUN is busy. The path of the page
//! depends on the [`Place`] of comparisons:
//!
//! ```text
//! page buffer -> Lun  | -> chip's pins -> Chip | -> channel -> Channel | -> DRAM -> link -> Fpga or Host
//! ```
//!
//! Results continue from there over the channel. If a hard decision fails, a core of the controller decodes the page.
//! If the place is a LUN or a chip, the page travels over the channel to the core and back (NDSearch, section IV-C5).

use std::collections::VecDeque;

use crate::device::{Device, Ps};
use crate::ecc::PlaneErrors;
use crate::events::{Bus, Events, Station};
use crate::place::Place;
use crate::report::{Counts, Use};
use crate::timeline::{Span, Timeline, Track};

/// Seed for the choice of hard decisions that fail.
const SEED_OF_ERRORS: u64 = 1;
/// Maximum number of waiting reads of a LUN that are examined for a multi-plane command.
const TOGETHER_MAX: usize = 16;
const NONE: u32 = u32::MAX;

/// Address of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageAddress {
    /// Number of the LUN, across the device.
    pub lun: u32,
    /// Number of the page in its block. Planes of a LUN can sense pages together if these have the same number.
    pub page: u32,
    /// Number of the block in its plane.
    pub block: u32,
    /// Number of the plane in its LUN.
    pub plane: u32,
}

/// A page to read, and the work to do on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageRead {
    pub(crate) address: PageAddress,
    /// Bytes of queries and addresses, which are sent with the command to the place of comparisons.
    pub(crate) in_bytes: u32,
    /// Bytes of the page that are transferred if it leaves its plane.
    pub(crate) page_bytes: u32,
    /// Bytes of the results.
    pub(crate) out_bytes: u32,
    /// Duration of the comparisons.
    pub(crate) compute: Ps,
}

/// How the machine uses its device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Usage {
    pub(crate) place: Place,
    /// Whether planes of a LUN sense pages together if the addresses allow it.
    pub(crate) multi_plane: bool,
    /// Number of units that compare, if the place is the FPGA or the host.
    pub(crate) units: u32,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    BusFree(u32),
    Arrive(u32),
    Queue(u32),
    Sensed(u32),
    Computed(u32),
    Transferred(u32),
    SoftArrived(u32),
    SoftDecoded(u32),
    Corrected(u32),
    Decoded(u32),
    Compared(u32),
    Done(u32),
}

/// A transfer over a channel. The stage `then` follows after a delay of `after`.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    name: &'static str,
    bytes: u64,
    after: Ps,
    then: Stage,
}

#[derive(Debug, Clone, Copy)]
struct Operation {
    read: PageRead,
    request: u32,
    /// Before this operation is queued: the next operation of its request. After that: the next operation that is
    /// sensed together with this one.
    next: u32,
    fails: bool,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    token: u64,
    first: u32,
    left: u32,
}

#[derive(Debug, Default)]
struct Lun {
    waiting: VecDeque<u32>,
    /// Number of pages in buffers that were not compared or transferred yet.
    held: u32,
    /// For each plane, the block and page in its buffer.
    buffers: Vec<Option<(u32, u32)>>,
    since: Ps,
    busy: Ps,
}

/// A device and all requests in progress.
pub(crate) struct Machine<'d> {
    device: &'d Device,
    usage: Usage,
    events: Events<Stage>,
    now: Ps,
    operations: Vec<Operation>,
    operations_free: Vec<u32>,
    requests: Vec<Request>,
    requests_free: Vec<u32>,
    luns: Vec<Lun>,
    channels: Vec<Bus<Transfer>>,
    pins: Vec<Station>,
    accelerators: Vec<Station>,
    cores: Station,
    dram: Station,
    link: Station,
    errors: PlaneErrors,
    pub(crate) counts: Counts,
    timeline: Timeline,
}

impl<'d> Machine<'d> {
    pub(crate) fn new(device: &'d Device, usage: Usage, timeline: Timeline) -> Self {
        let geometry = &device.geometry;
        let stations = |count: u32, servers: u32| vec![Station::new(servers); count as usize];
        // Logic in a LUN needs no queue: it works on the page buffer, and the LUN is busy meanwhile.
        let (accelerators, servers) = match usage.place {
            Place::Lun => (0, 1),
            Place::Chip => (geometry.chips(), 1),
            Place::Channel => (geometry.channels, 1),
            Place::Fpga | Place::Host => (1, usage.units),
        };
        let lun = || Lun { buffers: vec![None; geometry.planes_per_lun as usize], ..Lun::default() };
        let (mean, spread) = (device.config.value("ecc.hard_fails"), device.config.value("ecc.spread"));
        Self {
            device,
            usage,
            events: Events::default(),
            now: 0,
            operations: Vec::new(),
            operations_free: Vec::new(),
            requests: Vec::new(),
            requests_free: Vec::new(),
            luns: (0..geometry.luns()).map(|_| lun()).collect(),
            channels: (0..geometry.channels).map(|_| Bus::new(device.data_first)).collect(),
            pins: stations(geometry.chips(), 1),
            accelerators: stations(accelerators, servers),
            cores: Station::new(device.cores),
            dram: Station::new(1),
            link: Station::new(1),
            errors: PlaneErrors::new(geometry.planes(), mean, spread, SEED_OF_ERRORS),
            counts: Counts::default(),
            timeline,
        }
    }

    /// Submits a request for pages, all of which must be on the device. `token` is returned when all pages were
    /// processed.
    pub(crate) fn submit(&mut self, now: Ps, token: u64, pages: impl IntoIterator<Item = PageRead>) {
        let (mut first, mut left) = (NONE, 0);
        // The number of a request that has ended is reused, so that memory does not grow with the length of a run.
        let request = self.requests_free.pop().unwrap_or(self.requests.len() as u32);
        let mut last = NONE;
        for read in pages {
            let operation = put(
                &mut self.operations,
                &mut self.operations_free,
                Operation { read, request, next: NONE, fails: false },
            );
            match last {
                NONE => first = operation,
                last => self.operations[last as usize].next = operation,
            }
            (last, left) = (operation, left + 1);
        }
        assert!(left > 0, "a request asks for pages");
        let what = Request { token, first, left };
        match self.requests.get_mut(request as usize) {
            Some(place) => *place = what,
            None => self.requests.push(what),
        }
        self.counts.requests += 1;
        self.events.add(now, Stage::Arrive(request));
    }

    /// Runs until a request ends. Returns the time and the token of the request, or `None` if no request is in
    /// progress.
    pub(crate) fn next_end(&mut self) -> Option<(Ps, u64)> {
        self.next_end_by(Ps::MAX)
    }

    /// Runs until a request ends, and returns the time and its token. Returns `None` if no request ends up to
    /// `limit`. All events up to `limit` are then processed.
    pub(crate) fn next_end_by(&mut self, limit: Ps) -> Option<(Ps, u64)> {
        while self.events.next_time().is_some_and(|time| time <= limit)
            && let Some((now, stage)) = self.events.next()
        {
            debug_assert!(now >= self.now, "time never decreases");
            self.now = now;
            if let Some(token) = self.step(stage) {
                return Some((now, token));
            }
        }
        None
    }

    /// Drops the reads that wait for a LUN and have not begun, together with their requests. Each of these requests
    /// must be for one page. Returns how many reads were dropped.
    pub(crate) fn give_up_waiting(&mut self) -> u64 {
        let mut given_up = 0;
        for lun in &mut self.luns {
            // Another page of a request might have begun on another LUN. Therefore only requests of one page may be
            // dropped.
            for operation in lun.waiting.drain(..) {
                self.requests_free.push(self.operations[operation as usize].request);
                self.operations_free.push(operation);
                given_up += 1;
            }
        }
        given_up
    }

    fn step(&mut self, stage: Stage) -> Option<u64> {
        match stage {
            Stage::BusFree(channel) => {
                self.channels[channel as usize].end();
                self.begin_transfer(channel);
            }
            Stage::Arrive(request) => self.arrive(request),
            Stage::Queue(request) => self.queue(request),
            Stage::Sensed(operation) => self.sensed(operation),
            Stage::Computed(operation) => self.computed(operation),
            Stage::Transferred(operation) => self.transferred(operation),
            Stage::SoftArrived(operation) => self.on_core(operation),
            Stage::SoftDecoded(operation) => self.soft_decoded(operation),
            Stage::Corrected(operation) => self.corrected(operation),
            Stage::Decoded(operation) => self.decoded(operation),
            Stage::Compared(operation) => self.send_results(operation),
            Stage::Done(operation) => return self.done(operation),
        }
        None
    }

    /// Handles the arrival of a request. A request from the host or the FPGA takes time on a core of the controller.
    /// In NDSearch and DeepStore, the allocator addresses pages itself, without a core.
    fn arrive(&mut self, request: u32) {
        if self.usage.place < Place::Fpga {
            return self.queue(request);
        }
        let (_, end) = self.cores.serve(self.now, self.device.request);
        self.events.add(end, Stage::Queue(request));
    }

    fn queue(&mut self, request: u32) {
        let mut operation = self.requests[request as usize].first;
        while operation != NONE {
            let of = &mut self.operations[operation as usize];
            // The link is cleared first, since `begin` reuses it to chain operations that are sensed together.
            let (lun, next) = (of.read.address.lun, std::mem::replace(&mut of.next, NONE));
            // The first operations of a request may begin before its other operations are queued.
            self.luns[lun as usize].waiting.push_back(operation);
            self.begin(lun);
            operation = next;
        }
    }

    /// Starts the next command of a LUN if the LUN is idle.
    fn begin(&mut self, lun: u32) {
        let of = &mut self.luns[lun as usize];
        // A command occupies all planes of a LUN, so all buffers must be free before the next one.
        if of.held > 0 {
            return;
        }
        let Some(first) = of.waiting.pop_front() else { return };
        // A LUN counts as busy from the start of its command until its last page buffer is free. This includes waits
        // for the channel.
        of.since = self.now;
        let together = if self.usage.multi_plane { self.together_with(lun, first) } else { first };
        let (mut member, mut bytes, mut senses, mut commands) = (together, 0, false, 0);
        while member != NONE {
            let Operation { read, next, .. } = self.operations[member as usize];
            let PageAddress { page, block, plane, .. } = read.address;
            let of = &mut self.luns[lun as usize];
            let in_buffer = of.buffers[plane as usize].replace((block, page)) == Some((block, page));
            // For the FPGA and the host, a page is sensed again even if it is still in the buffer, as in commercial
            // disks.
            let stays = in_buffer && self.usage.place < Place::Fpga;
            of.held += 1;
            bytes += u64::from(read.in_bytes);
            commands += 1;
            senses |= !stays;
            self.counts.page_reads += u64::from(!stays);
            self.counts.buffer_hits += u64::from(stays);
            // A page that is still in the buffer was corrected when it was sensed.
            self.operations[member as usize].fails = !stays && {
                let plane = u64::from(lun) * u64::from(self.device.geometry.planes_per_lun) + u64::from(plane);
                self.errors.fails(plane, self.counts.page_reads)
            };
            member = next;
        }
        self.counts.senses += u64::from(senses);
        // A multi-plane command has one address cycle per plane, followed by one sensing for all planes.
        let takes = commands * self.device.command + self.device.channel.time(bytes);
        let after = if senses { self.device.read } else { 0 };
        let channel = self.device.geometry.channel_of(lun);
        let command = Transfer { name: "command", bytes, after, then: Stage::Sensed(together) };
        self.channels[channel as usize].add_command(takes, command);
        self.begin_transfer(channel);
    }

    /// Chains the read `first` with waiting reads of other planes that have the same page number. Returns the head of
    /// the chain.
    fn together_with(&mut self, lun: u32, first: u32) -> u32 {
        // For a multi-plane command, ONFI requires equal page numbers and different planes. Blocks may differ.
        let page = self.operations[first as usize].read.address.page;
        // A LUN has at most 64 planes, so one word can hold the set of planes.
        let mut planes = 1u64 << self.operations[first as usize].read.address.plane;
        let waiting = &mut self.luns[lun as usize].waiting;
        let (mut last, mut place) = (first, 0);
        while place < waiting.len().min(TOGETHER_MAX) {
            let address = self.operations[waiting[place] as usize].read.address;
            if address.page == page && planes & 1 << address.plane == 0 {
                planes |= 1 << address.plane;
                let taken = waiting.remove(place).expect("`place` is within the queue");
                self.operations[last as usize].next = taken;
                last = taken;
            } else {
                place += 1;
            }
        }
        first
    }

    /// Transfers data over the channel of a LUN. After that, the stage `then` follows.
    fn send(&mut self, lun: u32, takes: Ps, name: &'static str, bytes: u64, then: Stage) {
        let channel = self.device.geometry.channel_of(lun);
        self.channels[channel as usize].add_data(takes, Transfer { name, bytes, after: 0, then });
        self.begin_transfer(channel);
    }

    fn begin_transfer(&mut self, channel: u32) {
        let Some((takes, Transfer { name, bytes, after, then })) = self.channels[channel as usize].begin() else {
            return;
        };
        let ends = self.now + takes;
        self.counts.channel_bytes += bytes;
        self.timeline.add(Track::Channel(channel), name, self.now, ends);
        if let Stage::Sensed(operation) = then {
            let lun = self.operations[operation as usize].read.address.lun;
            self.timeline.add(Track::Lun(lun), "sense", ends, ends + after);
        }
        self.events.add(ends, Stage::BusFree(channel));
        self.events.add(ends + after, then);
    }

    fn sensed(&mut self, together: u32) {
        let mut member = together;
        while member != NONE {
            let Operation { read, next, fails, .. } = self.operations[member as usize];
            let (lun, page_bytes) = (read.address.lun, u64::from(read.page_bytes));
            // A LUN decodes and compares the page in its buffer. For all other places, the page must be transferred
            // first.
            match self.usage.place {
                Place::Lun if fails => self.send_to_core(member),
                Place::Lun => self.events.add(self.now + self.device.hard + read.compute, Stage::Computed(member)),
                Place::Chip => {
                    let chip = self.device.geometry.chip_of(lun);
                    let takes = self.device.channel.time(page_bytes);
                    let (_, end) = self.pins[chip as usize].serve(self.now, takes);
                    self.counts.pin_bytes += page_bytes;
                    self.events.add(end, Stage::Transferred(member));
                }
                _ => {
                    let takes = self.device.channel.time(page_bytes);
                    self.send(lun, takes, "page", page_bytes, Stage::Transferred(member));
                }
            }
            member = next;
        }
    }

    /// Sends a page to the controller, because the LUN or the chip could not correct it.
    fn send_to_core(&mut self, operation: u32) {
        let lun = self.operations[operation as usize].read.address.lun;
        let bytes = u64::from(self.device.geometry.page_bytes);
        self.send(lun, self.device.channel.time(bytes), "soft decoding", bytes, Stage::SoftArrived(operation));
    }

    fn on_core(&mut self, operation: u32) {
        self.counts.soft_decodes += 1;
        let (_, end) = self.cores.serve(self.now, self.device.soft);
        self.events.add(end, Stage::SoftDecoded(operation));
    }

    fn soft_decoded(&mut self, operation: u32) {
        // Beyond the chip, a page is decoded on its way, so it does not travel back.
        if self.usage.place > Place::Chip {
            return self.decoded(operation);
        }
        let read = self.operations[operation as usize].read;
        let bytes = u64::from(self.device.geometry.page_bytes);
        let then = if self.usage.place == Place::Lun { Stage::Corrected(operation) } else { Stage::Decoded(operation) };
        self.send(read.address.lun, self.device.channel.time(bytes), "corrected", bytes, then);
    }

    fn corrected(&mut self, operation: u32) {
        let compute = self.operations[operation as usize].read.compute;
        self.events.add(self.now + compute, Stage::Computed(operation));
    }

    /// Handles the end of a comparison in a LUN. The page buffer is free now, and the results are in the output
    /// buffer.
    fn computed(&mut self, operation: u32) {
        let read = self.operations[operation as usize].read;
        self.counts.compute += read.compute;
        self.release(read.address.lun);
        self.send_results(operation);
    }

    fn send_results(&mut self, operation: u32) {
        let read = self.operations[operation as usize].read;
        let bytes = u64::from(read.out_bytes);
        // If there are no results, no command is needed to read the output buffer.
        let takes = if bytes == 0 { 0 } else { self.device.command + self.device.channel.time(bytes) };
        self.send(read.address.lun, takes, "results", bytes, Stage::Done(operation));
    }

    fn release(&mut self, lun: u32) {
        let of = &mut self.luns[lun as usize];
        of.held -= 1;
        if of.held == 0 {
            of.busy += self.now - of.since;
            self.begin(lun);
        }
    }

    /// Handles the end of a page's transfer out of its LUN.
    fn transferred(&mut self, operation: u32) {
        let Operation { read, fails, .. } = self.operations[operation as usize];
        self.release(read.address.lun);
        match (fails, self.usage.place) {
            (false, _) => self.events.add(self.now + self.device.hard, Stage::Decoded(operation)),
            (true, Place::Chip) => self.send_to_core(operation),
            (true, _) => self.on_core(operation),
        }
    }

    /// Brings a decoded page to the place of comparisons, and compares it there.
    fn decoded(&mut self, operation: u32) {
        let read = self.operations[operation as usize].read;
        self.counts.compute += read.compute;
        let lun = read.address.lun;
        match self.usage.place {
            Place::Lun => unreachable!("a LUN compares what it has sensed"),
            Place::Chip => {
                let chip = self.device.geometry.chip_of(lun);
                let (_, end) = self.accelerators[chip as usize].serve(self.now, read.compute);
                self.events.add(end, Stage::Compared(operation));
            }
            Place::Channel => {
                let channel = self.device.geometry.channel_of(lun);
                let (_, end) = self.accelerators[channel as usize].serve(self.now, read.compute);
                self.events.add(end, Stage::Done(operation));
            }
            Place::Fpga | Place::Host => self.leave(operation),
        }
    }

    /// Transfers a page through the DRAM and over the link. Both serve pages in order of arrival, so one event at the
    /// end is enough.
    fn leave(&mut self, operation: u32) {
        let read = self.operations[operation as usize].read;
        let bytes = u64::from(read.page_bytes);
        let is_host = self.usage.place == Place::Host;
        let (rate, latency) =
            if is_host { (self.device.host_link, self.device.latency) } else { (self.device.fpga_link, 0) };
        let (_, buffered) = self.dram.serve(self.now, self.device.dram.time(bytes));
        let (begins, linked) = self.link.serve(buffered, rate.time(bytes));
        let (_, compared) = self.accelerators[0].serve(linked, read.compute);
        self.counts.link_bytes += bytes;
        self.timeline.add(Track::Link, "page", begins, linked);
        // The latency delays the answer but does not occupy the link.
        self.events.add(compared + latency, Stage::Done(operation));
    }

    /// Transfers bytes over the link from `now` on. They arrive after `takes`.
    pub(crate) fn transfer(&mut self, now: Ps, takes: Ps, bytes: u64) -> Ps {
        let (begins, ends) = self.link.serve(now, takes);
        self.counts.link_bytes += bytes;
        self.timeline.add(Track::Link, "shards", begins, ends);
        ends
    }

    fn done(&mut self, operation: u32) -> Option<u64> {
        let request = self.operations[operation as usize].request;
        self.operations_free.push(operation);
        let of = &mut self.requests[request as usize];
        of.left -= 1;
        // The number of a request becomes free after its last page, since all operations of the request refer to it.
        (of.left == 0).then(|| {
            self.requests_free.push(request);
            of.token
        })
    }

    /// Returns how long each kind of resource was busy.
    pub(crate) fn uses(&self) -> Vec<Use> {
        let of = |name, stations: &[Station]| Use {
            name,
            servers: stations.iter().map(Station::servers).sum(),
            busy: stations.iter().map(Station::busy).sum(),
            // The servers of a station share one queue. Only the sum of their busy times is recorded, so this is
            // their mean.
            busiest: stations.iter().map(|station| station.busy() / u64::from(station.servers())).max().unwrap_or(0),
        };
        let luns = Use {
            name: "LUNs",
            servers: self.luns.len() as u32,
            busy: self.luns.iter().map(|lun| lun.busy).sum(),
            busiest: self.luns.iter().map(|lun| lun.busy).max().unwrap_or(0),
        };
        let channels = Use {
            name: "channels",
            servers: self.channels.len() as u32,
            busy: self.channels.iter().map(Bus::busy).sum(),
            busiest: self.channels.iter().map(Bus::busy).max().unwrap_or(0),
        };
        let one = std::slice::from_ref::<Station>;
        vec![
            luns,
            channels,
            of("pins", &self.pins),
            of("accelerators", &self.accelerators),
            of("cores", one(&self.cores)),
            of("DRAM", one(&self.dram)),
            of("link", one(&self.link)),
        ]
    }

    /// Returns the spans of the timeline.
    pub(crate) fn into_spans(self) -> Vec<Span> {
        self.timeline.into_spans()
    }
}

fn put(operations: &mut Vec<Operation>, free: &mut Vec<u32>, operation: Operation) -> u32 {
    match free.pop() {
        Some(place) => {
            operations[place as usize] = operation;
            place
        }
        None => {
            operations.push(operation);
            operations.len() as u32 - 1
        }
    }
}

#[cfg(test)]
mod tests;
