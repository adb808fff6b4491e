//! The rows that engines write: which columns there are, and their units.

use super::{Column, Table};

macro_rules! kind {
    (F64) => {
        f64
    };
    (U64) => {
        u64
    };
    (Text) => {
        String
    };
}

macro_rules! row {
    ($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $kind:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: kind!($kind),)*
        }
        impl $name {
            /// The columns of such rows.
            pub const COLUMNS: &[&str] = &[$(stringify!($field)),*];

            /// A table for such rows, with none in it.
            pub fn table() -> Table {
                Table { columns: vec![$((stringify!($field).to_owned(), Column::$kind(Vec::new()))),*] }
            }

            /// Adds this row to a table made by `table()`.
            ///
            /// # Panics
            /// If the table has other columns.
            pub fn push(self, table: &mut Table) {
                let mut columns = table.columns.iter_mut();
                $(match columns.next() {
                    Some((name, Column::$kind(values))) if name == stringify!($field) => values.push(self.$field),
                    _ => panic!(concat!("the table's columns are not those of ", stringify!($name))),
                })*
                assert!(columns.next().is_none(), "rows are written before coordinates are added");
            }
        }
    };
}

row! {
    /// Record of one task.
    TaskRow {
        /// Its name; unique in the run.
        task: Text,
        /// When it was asked for, seconds since the run began.
        arrival_s: F64,
        /// When its receiver had it all, seconds since the run began; NaN if it never had.
        finish_s: F64,
        /// Task completion time: `finish_s - arrival_s`; NaN if unfinished.
        tct_s: F64,
        /// `tct_s` over the workload's normaliser, mean size / host rate (PPUSH §V-B); NaN where there is none.
        normalised: F64,
        /// Its size in packets; 0 if it has no end.
        packets: U64,
        /// The host that wants it.
        receiver: U64,
        /// How many sources it has.
        fanout: U64,
        /// Retransmission timeouts of all its flows.
        timeouts: U64,
        /// `packets` over `tct_s`, per second: with several receivers, as the last of them saw it. NaN if unfinished.
        goodput: F64,
        /// `tct_s` over what it would be with nobody else in the network and no limit but its links; NaN if unfinished, or where
        /// that is not known.
        slowdown: F64,
        /// Packets of all its flows of which only the header came; NaN if unfinished, or where nobody counts them.
        trimmed: F64,
        /// Packets of all its flows that came whole and were of no use; NaN likewise.
        unneeded: F64,
    }
}

row! {
    /// Record of one flow: what one source sent for one task.
    FlowRow {
        /// The task's name; of background, its own.
        task: Text,
        /// The task's name if it has one source, else that and the source's place: `t7.0`, `t7.1`.
        flow: Text,
        /// The host that sends.
        source: U64,
        /// The host that receives.
        receiver: U64,
        /// Packets that the receiver could use: duplicates do not count.
        packets: U64,
        /// `packets` over all useful packets of the task: 0..=1; NaN if there are none.
        share: F64,
        /// When it began, seconds since the run began.
        start_s: F64,
        /// When its last useful packet arrived, seconds since the run began; NaN if there is none.
        finish_s: F64,
        /// Retransmission timeouts.
        timeouts: U64,
        /// Packets that the source took for lost.
        losses: U64,
        /// ACKs that echoed a mark.
        marks: U64,
    }
}

row! {
    /// One value of a time series.
    SampleRow {
        /// Seconds since the run began.
        t_s: F64,
        /// Entity that it is of: a flow (`f1`), or a link by the points it joins (`a-b`, from a to b).
        entity: Text,
        /// Quantity: `window` and `queue` in packets, `rtt` in seconds, `mark_fraction` 0..=1, `rate` and `goodput` in
        /// useful packets per second over the interval that ends at `t_s`, `theta`; `mean_queue_after_join` in packets,
        /// where the entity is the number of flows that have joined.
        quantity: Text,
        /// In the quantity's unit.
        value: F64,
    }
}

row! {
    /// One number about a whole run.
    MeasureRow {
        /// Which: `utilisation a-b` (0..=1, of the link from a to b), `goodput` (the tasks' useful packets per second over the run),
        /// `drops`, `mean_queue a-b` and `max_queue a-b` (packets), `timeouts`, `normaliser_s`, `events`, `hops` (packets
        /// sent over a link, ACKs included), `fct_mean_s` and `fct_max_s` (of flows, until the last ACK is back),
        /// `aggregate_goodput` (useful packets per second from the first task's arrival to the last one's end, or the run's),
        /// `background_goodput` (packets per second, of each long flow that the seed drew), `requested_goodput` (the same of the
        /// requests in the background, for each host). Of disjoint trees: `trees`, `bound` (the most there can be), `shortfall` (the
        /// part of the bound that is missing), `without_tree` (1 if there is none, else 0), `rebuilt` (trees that failures had
        /// broken), `depth` (links from the source to the farthest receiver, mean over the trees), `max_depth`, `tree_links` and
        /// `branching_nodes` (mean over the trees), `link_stress` (the most trees on one link). Of Datacast in equations:
        /// `duplicate_ratio`, `cache_bound` (bytes), `duplicate_bound` and `rtt_s`. Of one object to a group, at rates: `finish_s` (when
        /// the last receiver has everything), `ideal_s` (over as many trees as there can be), `network_stress` (bytes over all
        /// links), `link_stress` (times that a block crossed a link that it crossed at all, mean).
        name: Text,
        /// Its value.
        value: F64,
    }
}
