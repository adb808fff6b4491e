//! `--timeline`: what every flow of this process does, interval by interval, as rows of a CSV file.
//!
//! Header `t_ns,object,flow,quantity,value`; rows ascend in `t_ns`, which is CLOCK_MONOTONIC. The data thread looks at its
//! machines at whole multiples of the interval on that clock, so that samples of several processes fall together; a look
//! that comes late bears the newest multiple, and those it missed have no rows. A thread of its own writes.
//!
//! | Quantity | Of | |
//! |---|---|---|
//! | `window`, `in_flight` | source | packets |
//! | `rtt` | source | smoothed round-trip time, seconds; not before it is measured |
//! | `mark_fraction`, `theta` | source | PPUSH α (Eq. 1) and θ |
//! | `rate` | source | packets sent since the sample before, per second |
//! | `sent`, `lost`, `marked`, `timeouts` | source | counts since the flow began |
//! | `yields` | source | how often a gentle flow's window was cut in favour of others, since it began |
//! | `goodput` | receiver | useful symbols since the sample before, per second |
//! | `useful` | receiver | count since the flow began |
//!
//! When a flow closes, or its receiver has everything, the rows of its end follow, at the very moment, so that its counts
//! are complete. They have no `rate` and no `goodput`, since the span is no whole interval.
//!
//! Window, round trip and the like are what the packet engine samples (`headwater_sim::packet`), by the same names.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use headwater_transport::source::FlowStats;
use headwater_units::{Duration, FlowId, ObjectId, Time};

/// Samples that may wait for the writer; more are given up and counted, since the data thread waits for no disk. At the
/// usual 10 ms this is a disk that stands still for 20 s.
const QUEUE: usize = 2048;
const HEADER: &[u8] = b"t_ns,object,flow,quantity,value\n";

/// A file for rows, created but for its header empty.
#[derive(Clone, Debug)]
pub struct TimelineFile {
    file: Arc<File>,
    every: Duration,
}

impl TimelineFile {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Panics
    /// If `every` is no time.
    pub fn create(path: &Path, every: Duration) -> io::Result<Self> {
        assert!(every > Duration::ZERO, "samples are some time apart");
        let mut file = File::create(path)?;
        file.write_all(HEADER)?;
        Ok(TimelineFile { file: Arc::new(file), every })
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    t_ns: u64,
    object: ObjectId,
    flow: FlowId,
    quantity: &'static str,
    value: f64,
}

/// A flow that this process receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receives {
    pub(crate) object: ObjectId,
    pub(crate) flow: FlowId,
    /// Useful symbols so far.
    pub(crate) useful: u64,
}

/// The data thread's side. Dropping it waits until everything is written.
pub(crate) struct Timeline {
    every: u64,
    /// CLOCK_MONOTONIC at the machines' [`Time::ZERO`], nanoseconds.
    epoch: u64,
    /// When the next sample is due; none while nothing flows.
    next: Option<Time>,
    /// The look before, nanoseconds of CLOCK_MONOTONIC.
    last: u64,
    /// Packets that each flow had sent by then, and useful symbols that each had brought.
    sent: BTreeMap<FlowId, u64>,
    useful: BTreeMap<FlowId, u64>,
    rows: Option<SyncSender<Vec<Row>>>,
    given_up: u64,
    writer: Option<JoinHandle<()>>,
}

impl Timeline {
    /// Starts the writer. `epoch` is CLOCK_MONOTONIC at the machines' [`Time::ZERO`], in nanoseconds.
    pub(crate) fn start(file: TimelineFile, epoch: u64) -> io::Result<Self> {
        let (rows, queue) = sync_channel(QUEUE);
        let every = file.every.as_nanos();
        let writer = std::thread::Builder::new()
            .name("timeline".into())
            .spawn(move || write_rows(&mut file.file.as_ref(), &queue))?;
        Ok(Timeline {
            every,
            epoch,
            next: None,
            last: epoch,
            sent: BTreeMap::new(),
            useful: BTreeMap::new(),
            rows: Some(rows),
            given_up: 0,
            writer: Some(writer),
        })
    }

    /// When the next sample is due.
    pub(crate) fn wake(&self) -> Option<Time> {
        self.next
    }

    /// Something begins to flow: looks from the next multiple on.
    pub(crate) fn arm(&mut self, now: Time) {
        if self.next.is_none() {
            // Nothing flowed at the multiple before, so whatever is sent until the next one was sent between the two.
            self.last = self.newest(now);
            self.next = Some(self.at(self.last + self.every));
        }
    }

    /// A look at everything that flows.
    pub(crate) fn sample(
        &mut self,
        now: Time,
        sending: impl Iterator<Item = FlowStats>,
        receiving: impl Iterator<Item = Receives>,
    ) {
        let t_ns = self.newest(now);
        let looked = self.epoch + now.as_nanos();
        let span = Duration::from_nanos(looked - std::mem::replace(&mut self.last, looked)).as_secs_f64();
        let mut rows = Vec::new();
        for flow in sending {
            let sent = flow.counters.sent.get();
            let before = self.sent.insert(flow.flow, sent).unwrap_or(0);
            state_rows(t_ns, &flow, &mut rows);
            rows.push(Row { quantity: "rate", value: (sent - before) as f64 / span, ..row(t_ns, &flow) });
            count_rows(t_ns, &flow, &mut rows);
        }
        for Receives { object, flow, useful } in receiving {
            let before = self.useful.insert(flow, useful).unwrap_or(0);
            let goodput = (useful - before) as f64 / span;
            rows.push(Row { t_ns, object, flow, quantity: "goodput", value: goodput });
            rows.push(Row { t_ns, object, flow, quantity: "useful", value: useful as f64 });
        }
        self.next = (!rows.is_empty()).then(|| self.at(t_ns + self.every));
        self.hand_over(rows);
    }

    /// A flow of this process's source has closed; what it had done, if anybody knows.
    pub(crate) fn closed(&mut self, now: Time, flow: FlowId, stats: Option<FlowStats>) {
        self.sent.remove(&flow);
        if let Some(stats) = stats {
            let (t_ns, mut rows) = (self.epoch + now.as_nanos(), Vec::new());
            state_rows(t_ns, &stats, &mut rows);
            count_rows(t_ns, &stats, &mut rows);
            self.hand_over(rows);
        }
    }

    /// Nothing more will come by these flows.
    pub(crate) fn received(&mut self, now: Time, flows: impl Iterator<Item = Receives>) {
        let t_ns = self.epoch + now.as_nanos();
        let mut rows = Vec::new();
        for Receives { object, flow, useful } in flows {
            self.useful.remove(&flow);
            rows.push(Row { t_ns, object, flow, quantity: "useful", value: useful as f64 });
        }
        self.hand_over(rows);
    }

    /// The newest multiple of the interval, nanoseconds of CLOCK_MONOTONIC.
    fn newest(&self, now: Time) -> u64 {
        let t_ns = self.epoch + now.as_nanos();
        t_ns - t_ns % self.every
    }

    fn at(&self, t_ns: u64) -> Time {
        Time::from_nanos(t_ns.saturating_sub(self.epoch))
    }

    fn hand_over(&mut self, rows: Vec<Row>) {
        let Some(queue) = self.rows.as_ref().filter(|_| !rows.is_empty()) else { return };
        match queue.try_send(rows) {
            Ok(()) => {}
            Err(TrySendError::Full(rows)) => {
                if self.given_up == 0 {
                    tracing::warn!("the timeline's disk does not keep up: rows are missing from here on");
                }
                self.given_up += rows.len() as u64;
            }
            // The writer said why it ended.
            Err(TrySendError::Disconnected(_)) => self.rows = None,
        }
    }
}

/// Flows of the source as they were before an input that may have ended them: the machine then forgets them.
#[derive(Debug, Default)]
pub(crate) struct Ending(BTreeMap<FlowId, FlowStats>);

impl Ending {
    /// Keeps what these flows have done so far.
    pub(crate) fn keep(&mut self, sending: impl Iterator<Item = FlowStats>) {
        self.0.extend(sending.map(|flow| (flow.flow, flow)));
    }

    /// The final counters of a flow that is over.
    pub(crate) fn take(&mut self, flow: FlowId) -> Option<FlowStats> {
        self.0.remove(&flow)
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        self.rows = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
        if self.given_up > 0 {
            tracing::warn!(rows = self.given_up, "the timeline lacks rows");
        }
    }
}

fn row(t_ns: u64, flow: &FlowStats) -> Row {
    Row { t_ns, object: flow.object, flow: flow.flow, quantity: "", value: 0.0 }
}

fn state_rows(t_ns: u64, flow: &FlowStats, rows: &mut Vec<Row>) {
    let mut note = |quantity, value| rows.push(Row { quantity, value, ..row(t_ns, flow) });
    note("window", flow.window.get());
    if let Some(rtt) = flow.rtt {
        note("rtt", rtt.as_secs_f64());
    }
    note("mark_fraction", flow.mark_fraction);
    note("theta", flow.theta.get());
    note("in_flight", flow.in_flight as f64);
}

fn count_rows(t_ns: u64, flow: &FlowStats, rows: &mut Vec<Row>) {
    let counters = &flow.counters;
    for (quantity, value) in [
        ("sent", counters.sent.get()),
        ("lost", counters.lost.get()),
        ("marked", counters.marked.get()),
        ("timeouts", counters.timeouts),
        ("yields", counters.yields.total()),
    ] {
        rows.push(Row { quantity, value: value as f64, ..row(t_ns, flow) });
    }
}

/// Writes what is there as soon as it is there: whole lines in one call, so that a killed process leaves no half one.
fn write_rows(to: &mut impl Write, queue: &Receiver<Vec<Row>>) {
    let mut text = Vec::new();
    while let Ok(first) = queue.recv() {
        text.clear();
        for Row { t_ns, object, flow, quantity, value } in first.into_iter().chain(queue.try_iter().flatten())
        {
            writeln!(text, "{t_ns},{object},{flow},{quantity},{value}").expect("a vector takes all");
        }
        if let Err(error) = to.write_all(&text) {
            tracing::error!(%error, "the timeline cannot be written any more and ends here");
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use headwater_transport::source::FlowCounters;
    use headwater_units::{NodeId, Packets, Symbols, TaskId, Theta};
    use headwater_wire::MarkSignal;

    use super::*;

    const MS: u64 = 1_000_000;
    /// Not a multiple of the interval: the machines' clock began somewhere in between.
    const EPOCH: u64 = 1_003 * MS;

    fn flow(flow: u64, sent: u64) -> FlowStats {
        FlowStats {
            flow: FlowId(flow),
            task: TaskId(1),
            object: ObjectId([0xab; 32]),
            receiver: NodeId([0; 32]),
            theta: Theta::ONE,
            window: Packets::new(2.5),
            mark_fraction: 0.25,
            rtt: None,
            min_rtt: None,
            signal: MarkSignal::Unknown,
            in_flight: 2,
            starved: false,
            paused: false,
            symbol_size: 1424,
            fits: None,
            counters: FlowCounters { sent: Symbols::new(sent), ..FlowCounters::default() },
            tree: None,
        }
    }

    fn at(ms: u64) -> Time {
        Time::from_nanos(ms * MS)
    }

    /// Rows that a timeline of 10 ms writes: time in ms of the shared clock, flow, quantity, value.
    fn written(act: impl FnOnce(&mut Timeline)) -> Vec<(u64, u64, String, f64)> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.csv");
        let file = TimelineFile::create(&path, Duration::from_millis(10)).unwrap();
        let mut timeline = Timeline::start(file, EPOCH).unwrap();
        act(&mut timeline);
        drop(timeline);
        let text = std::fs::read_to_string(path).unwrap();
        let mut lines = text.lines();
        assert_eq!(lines.next(), Some("t_ns,object,flow,quantity,value"));
        let read = |line: &str| {
            let [t, object, flow, quantity, value] = line.split(',').collect::<Vec<_>>()[..] else {
                panic!("not five columns: {line}")
            };
            assert_eq!(object, "ab".repeat(32));
            (t.parse::<u64>().unwrap() / MS, flow.parse().unwrap(), quantity.into(), value.parse().unwrap())
        };
        lines.map(read).collect()
    }

    fn of(rows: &[(u64, u64, String, f64)], quantity: &str) -> Vec<(u64, f64)> {
        rows.iter().filter(|row| row.2 == quantity).map(|row| (row.0, row.3)).collect()
    }

    #[test]
    fn samples_lie_on_multiples_of_the_interval_and_late_looks_skip_some() {
        let rows = written(|timeline| {
            assert_eq!(timeline.wake(), None);
            timeline.arm(at(2));
            assert_eq!(timeline.wake(), Some(at(7)));
            timeline.sample(at(7), [flow(1, 10)].into_iter(), std::iter::empty());
            // Two multiples late and a bit: one row, at the newest, over the true span.
            timeline.sample(at(30), [flow(1, 33)].into_iter(), std::iter::empty());
            assert_eq!(timeline.wake(), Some(at(37)));
            timeline.sample(at(37), std::iter::empty(), std::iter::empty());
            assert_eq!(timeline.wake(), None, "nothing flows any more");
        });
        assert_eq!(of(&rows, "sent"), [(1010, 10.0), (1030, 33.0)]);
        assert_eq!(of(&rows, "rate"), [(1010, 1000.0), (1030, 1000.0)]);
        assert_eq!(of(&rows, "window"), [(1010, 2.5), (1030, 2.5)]);
        assert_eq!(of(&rows, "rtt"), [], "not measured yet");
    }

    #[test]
    fn a_flow_that_closes_leaves_its_last_counts() {
        let rows = written(|timeline| {
            timeline.arm(at(0));
            let mut ending = Ending::default();
            ending.keep([flow(1, 4), flow(2, 5)].into_iter());
            timeline.closed(at(1), FlowId(1), ending.take(FlowId(1)));
            ending.keep([flow(2, 9)].into_iter());
            timeline.closed(at(2), FlowId(2), ending.take(FlowId(2)));
            timeline.closed(at(3), FlowId(2), ending.take(FlowId(2)));
        });
        assert_eq!(of(&rows, "sent"), [(1004, 4.0), (1005, 9.0)]);
        assert!(of(&rows, "rate").is_empty());
    }

    #[test]
    fn useful_symbols_become_goodput_and_a_total() {
        let receives = |useful| Receives { object: ObjectId([0xab; 32]), flow: FlowId(7), useful };
        let rows = written(|timeline| {
            timeline.arm(at(7));
            timeline.sample(at(17), std::iter::empty(), [receives(20)].into_iter());
            timeline.sample(at(27), std::iter::empty(), [receives(50)].into_iter());
            timeline.received(at(29), [receives(55)].into_iter());
        });
        assert_eq!(of(&rows, "goodput"), [(1020, 2000.0), (1030, 3000.0)]);
        assert_eq!(of(&rows, "useful"), [(1020, 20.0), (1030, 50.0), (1032, 55.0)]);
        assert!(rows.is_sorted_by_key(|row| row.0));
    }

    #[test]
    fn a_file_that_cannot_be_written_ends_the_writer_and_nothing_else() {
        struct Full;
        impl Write for Full {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (rows, queue) = sync_channel(1);
        rows.send(vec![row(1, &flow(1, 1))]).unwrap();
        write_rows(&mut Full, &queue);
        drop(queue);
        let folder = tempfile::tempdir().unwrap();
        let file = TimelineFile::create(&folder.path().join("t"), Duration::from_millis(1)).unwrap();
        let mut timeline = Timeline::start(file, EPOCH).unwrap();
        timeline.rows = Some(rows);
        timeline.hand_over(vec![row(1, &flow(1, 1))]);
        assert!(timeline.rows.is_none(), "nothing is handed to a writer that has ended");
    }
}
