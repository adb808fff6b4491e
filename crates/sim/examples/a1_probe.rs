//! probe
use headwater_sim::experiment::*;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string(&a[1]).unwrap();
    let e = Experiment::parse("x/y", &text).unwrap();
    for job in e.jobs(Engine::Packet, Scale::Paper, Some(1)).unwrap() {
        if !format!("{:?} {}", job.point, job.scheme).contains(&a[2]) { continue; }
        let t = headwater_sim::run::run_job(&job, &mut |_| {}).unwrap();
        for i in 0..t.samples.rows() { println!("{:?} {}", job.point, t.samples.columns.iter().map(|(n, c)| format!("{n}={}", c.text(i))).collect::<Vec<_>>().join(" ")); }
    }
}
