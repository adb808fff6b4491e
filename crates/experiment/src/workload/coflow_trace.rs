//! Coflow traces in the format of the public benchmark (coflow/coflow-benchmark): a strict reader.
//!
//! ```text
//! <ports> <coflows>
//! <id> <arrival in ms> <mappers> <port of each mapper> <reducers> <port>:<MB that this reducer gets> ...
//! ```
//!
//! Ports count from 0. A MB is 2^20 bytes, as the public simulators read it. Each reducer gets its megabytes from all mappers in
//! even parts; odd bytes go to the first mappers. Every field is checked, since a trace with one wrong field gives wrong figures
//! without any sign of it.

mod error;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use headwater_policy::coflow::Port;
use headwater_sim::coflow::{CoflowSpec, FlowSpec};
use headwater_units::{Bytes, TaskId, Time};

pub use error::{Problem, TraceError};

/// The most flows of a trace: a run keeps some 150 bytes for each, and should stay below 2 GB.
pub const MAX_FLOWS: u64 = 10_000_000;
/// The most bytes of a trace, 8 PiB: sums stay exact in a floating-point number.
pub const MAX_BYTES: u64 = 1 << 53;
/// The latest arrival, 30 days: beyond, nanoseconds are not exact in a floating-point number.
pub const MAX_ARRIVAL_MS: u64 = 30 * 24 * 3_600_000;

/// The coflows of a trace, in the order of its lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoflowTrace {
    /// How many ports there are.
    pub ports: u16,
    /// Every coflow.
    pub coflows: Vec<TraceCoflow>,
}

/// One line of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceCoflow {
    /// Its number.
    pub id: TaskId,
    /// When it arrives.
    pub arrival: Time,
    /// The ports that send, each once.
    pub mappers: Vec<Port>,
    /// The ports that receive, each once, and what each gets.
    pub reducers: Vec<(Port, Bytes)>,
}

impl CoflowTrace {
    /// Reads a trace.
    ///
    /// # Errors
    /// [`TraceError`] names the line, the field and what to do about it.
    pub fn parse(bytes: &[u8]) -> Result<CoflowTrace, TraceError> {
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
            TraceError { line, field: "text".to_owned(), problem: Problem::NotText }
        })?;
        let whole = text.strip_suffix('\n');
        let mut lines = whole.unwrap_or(text).split('\n').zip(1..);
        let (head, _) = lines.next().unwrap_or(("", 1));
        let mut head = Fields::of(head, 1);
        let ports = head.number("number of ports", 1, u64::from(u16::MAX))? as u16;
        let count = head.number("number of coflows", 1, MAX_FLOWS)?;
        head.end()?;
        let mut reader = Reader { ports, ids: BTreeMap::new(), flows: 0, bytes: 0 };
        let mut coflows = Vec::new();
        for (line, number) in lines {
            if coflows.len() as u64 == count {
                return Err(wrong(number, "line", Problem::MoreCoflows { count }));
            }
            coflows.push(reader.coflow(line, number)?);
        }
        if (coflows.len() as u64) < count {
            let problem = Problem::FewerCoflows { count, found: coflows.len() };
            return Err(wrong(coflows.len() + 2, "line", problem));
        }
        // The last number could have lost digits without any other sign.
        match whole {
            Some(_) => Ok(CoflowTrace { ports, coflows }),
            None => Err(wrong(coflows.len() + 1, "end of file", Problem::NoNewline)),
        }
    }

    /// The trace as text, which reads back as the same.
    pub fn to_text(&self) -> String {
        let mut text = format!("{} {}\n", self.ports, self.coflows.len());
        for coflow in &self.coflows {
            let ms = coflow.arrival.as_nanos() / 1_000_000;
            let _ = write!(text, "{} {ms} {}", coflow.id, coflow.mappers.len());
            for Port(port) in &coflow.mappers {
                let _ = write!(text, " {port}");
            }
            let _ = write!(text, " {}", coflow.reducers.len());
            for (Port(port), bytes) in &coflow.reducers {
                let _ = write!(text, " {port}:{}", bytes.get() as f64 / f64::from(1 << 20));
            }
            text.push('\n');
        }
        text
    }

    /// All bytes of all coflows: at most [`MAX_BYTES`].
    pub fn bytes(&self) -> Bytes {
        let reducers = self.coflows.iter().flat_map(|coflow| &coflow.reducers);
        Bytes::new(reducers.map(|(_, bytes)| bytes.get()).sum())
    }

    /// Input of a simulation: every flow with its size, on this many ports. Port p of the trace becomes port p modulo
    /// that.
    pub fn specs(&self, ports: u16) -> Vec<CoflowSpec> {
        let fold = |Port(port): Port| Port(port % ports.max(1));
        let spec = |coflow: &TraceCoflow| {
            let mut flows = Vec::with_capacity(coflow.mappers.len() * coflow.reducers.len());
            for (receiver, bytes) in &coflow.reducers {
                for (mapper, source) in (0..).zip(&coflow.mappers) {
                    let bytes = part(*bytes, coflow.mappers.len() as u64, mapper);
                    flows.push(FlowSpec { source: fold(*source), receiver: fold(*receiver), bytes });
                }
            }
            CoflowSpec { task: coflow.id, arrival: coflow.arrival, weight: 1.0, flows }
        };
        self.coflows.iter().map(spec).collect()
    }
}

/// The part of the mapper of this number, from 0, of what a reducer gets from `mappers` mappers.
fn part(bytes: Bytes, mappers: u64, mapper: u64) -> Bytes {
    let (each, odd) = (bytes.get() / mappers, bytes.get() % mappers);
    Bytes::new(each + u64::from(mapper < odd))
}

impl TraceCoflow {
    /// How many flows it has.
    pub fn width(&self) -> usize {
        self.mappers.len() * self.reducers.len()
    }

    /// The size of its largest flow.
    pub fn length(&self) -> Bytes {
        let sizes = self.reducers.iter().map(|(_, bytes)| part(*bytes, self.mappers.len() as u64, 0));
        sizes.max().unwrap_or(Bytes::ZERO)
    }
}

/// Facts from earlier lines.
struct Reader {
    ports: u16,
    /// The line of every coflow.
    ids: BTreeMap<u64, usize>,
    flows: u64,
    bytes: u64,
}

impl Reader {
    fn coflow(&mut self, line: &str, number: usize) -> Result<TraceCoflow, TraceError> {
        let mut fields = Fields::of(line, number);
        let id = fields.number("coflow id", 0, u64::MAX)?;
        if let Some(first) = self.ids.insert(id, number) {
            return Err(wrong(number, "coflow id", Problem::IdTwice { id, first }));
        }
        let arrival = fields.number("arrival in ms", 0, MAX_ARRIVAL_MS)?;
        let count = fields.number("number of mappers", 1, u64::from(self.ports))?;
        let (mut mappers, mut seen) = (Vec::new(), BTreeSet::new());
        for place in 1..=count {
            let field = format!("port of mapper {place}");
            let port = self.port(fields.next(&field)?, number, &field)?;
            if !seen.insert(port) {
                return Err(wrong(number, &field, Problem::PortTwice { port }));
            }
            mappers.push(Port(port));
        }
        let count = fields.number("number of reducers", 1, u64::from(self.ports))?;
        let (mut reducers, mut seen) = (Vec::new(), BTreeSet::new());
        for place in 1..=count {
            let field = format!("reducer {place}");
            let text = fields.next(&field)?;
            let Some((port, megabytes)) = text.split_once(':') else {
                return Err(wrong(number, &field, Problem::NoColon { text: text.to_owned() }));
            };
            let (port_field, size_field) =
                (format!("port of reducer {place}"), format!("MB of reducer {place}"));
            let port = self.port(port, number, &port_field)?;
            if !seen.insert(port) {
                return Err(wrong(number, &port_field, Problem::PortTwice { port }));
            }
            let bytes = self.size(megabytes, number, &size_field)?;
            reducers.push((Port(port), Bytes::new(bytes)));
        }
        fields.end()?;
        self.flows += mappers.len() as u64 * reducers.len() as u64;
        if self.flows > MAX_FLOWS {
            return Err(wrong(number, "line", Problem::TooManyFlows { flows: self.flows }));
        }
        let arrival = Time::from_nanos(arrival * 1_000_000);
        Ok(TraceCoflow { id: TaskId(id), arrival, mappers, reducers })
    }

    fn port(&self, text: &str, line: usize, field: &str) -> Result<u16, TraceError> {
        let last = u64::from(self.ports) - 1;
        number(text, 0, last).map(|port| port as u16).map_err(|problem| {
            let problem = match problem {
                Problem::OutOfRange { value, .. } => Problem::NoSuchPort { port: value, ports: self.ports },
                other => other,
            };
            wrong(line, field, problem)
        })
    }

    /// Megabytes as bytes.
    fn size(&mut self, text: &str, line: usize, field: &str) -> Result<u64, TraceError> {
        let failed = |problem| wrong(line, field, problem);
        if text.starts_with('-') {
            return Err(failed(Problem::Negative { text: text.to_owned() }));
        }
        let plain = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let megabytes: Option<f64> = text.parse().ok().filter(|_| plain);
        let megabytes = megabytes.ok_or_else(|| failed(Problem::NotANumber { text: text.to_owned() }))?;
        let bytes = (megabytes * f64::from(1 << 20)).round();
        // Two numbers up to 2^53 have a sum that fits.
        let total = if bytes <= MAX_BYTES as f64 { self.bytes + bytes as u64 } else { u64::MAX };
        if total > MAX_BYTES {
            return Err(failed(Problem::TooLarge { text: text.to_owned() }));
        }
        self.bytes = total;
        Ok(bytes as u64)
    }
}

/// The fields of one line.
struct Fields<'a> {
    rest: std::str::SplitAsciiWhitespace<'a>,
    line: usize,
}

impl<'a> Fields<'a> {
    fn of(line: &'a str, number: usize) -> Fields<'a> {
        Fields { rest: line.split_ascii_whitespace(), line: number }
    }

    fn next(&mut self, field: &str) -> Result<&'a str, TraceError> {
        self.rest.next().ok_or_else(|| wrong(self.line, field, Problem::Missing))
    }

    fn number(&mut self, field: &str, least: u64, most: u64) -> Result<u64, TraceError> {
        let text = self.next(field)?;
        number(text, least, most).map_err(|problem| wrong(self.line, field, problem))
    }

    fn end(&mut self) -> Result<(), TraceError> {
        match self.rest.next() {
            None => Ok(()),
            Some(text) => Err(wrong(self.line, "end of line", Problem::Excess { text: text.to_owned() })),
        }
    }
}

/// Digits alone, from `least` to `most`.
fn number(text: &str, least: u64, most: u64) -> Result<u64, Problem> {
    let shown = || text.to_owned();
    if text.starts_with('-') {
        return Err(Problem::Negative { text: shown() });
    }
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(Problem::NotANumber { text: shown() });
    }
    match text.parse() {
        Ok(value) if (least..=most).contains(&value) => Ok(value),
        _ => Err(Problem::OutOfRange { value: shown(), least, most }),
    }
}

fn wrong(line: usize, field: &str, problem: Problem) -> TraceError {
    TraceError { line, field: field.to_owned(), problem }
}
