//! Scheduled transfers (PAM §III): a source and its receivers, over a network whose switch lowers offers.

mod deadlines;
mod fallback;
mod groups;
mod hostile;
mod net;
mod rates;
mod repairs;
mod terms;
