//! Big objects onto many machines, from every machine that already has them: the product as a library, as
//! [`headwater_api`] has it.

pub use headwater_api::*;
