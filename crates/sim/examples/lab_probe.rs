//! probe
use headwater_sim::experiment::*;
use headwater_sim::table::Tables;
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let text = std::fs::read_to_string(&a[1]).unwrap();
    let id = a[1].trim_end_matches(".toml").rsplit("experiments/").next().unwrap().to_string();
    let e = Experiment::parse(&id, &text).unwrap_or_else(|e| panic!("{e}"));
    let scale = if a.get(2).is_some_and(|s| s == "paper") { Scale::Paper } else { Scale::Small };
    let seeds = a.get(3).map(|s| s.parse().unwrap());
    let mut all = Tables::gathering();
    let only = std::env::var("ONLY").ok();
    let mut hops = 0.0;
    let begin = std::time::SystemTime::now();
    for job in e.jobs(Engine::Packet, scale, seeds).unwrap() {
        if only.as_ref().is_some_and(|o| !format!("{:?} {}", job.point, job.scheme).contains(o.as_str())) { continue; }
        let t = std::time::SystemTime::now();
        match headwater_sim::run::run_job(&job, &mut |_| {}) {
            Ok(tables) => {
                let get = |n: &str| { let m = &tables.measures; let names = m.column("name").unwrap(); (0..m.rows()).find(|&i| names.is(i, n)).and_then(|i| m.column("value").unwrap().number(i)).unwrap_or(f64::NAN) };
                hops += get("hops");
                if std::env::var("V").is_ok() { eprintln!("{:?} {} s{}: {:.2}s hops {:.0} drops {} timeouts {} goodput {:.0}", job.point, job.scheme, job.seed, t.elapsed().unwrap().as_secs_f64(), get("hops"), get("drops"), get("timeouts"), get("goodput")); }
                job.gather(tables, &mut all).unwrap();
            }
            Err(err) => eprintln!("{:?} {}: {err}", job.point, job.scheme),
        }
    }
    let s = begin.elapsed().unwrap().as_secs_f64();
    eprintln!("{id}: {s:.1} s, {:.1} M hops, {:.2} M hops/s", hops / 1e6, hops / s / 1e6);
    for v in e.judge(Engine::Packet, scale, &all) { println!("{:?}", v); }
}
