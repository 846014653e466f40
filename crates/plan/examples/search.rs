use henge_plan::search::*;
use henge_plan::*;
use henge_spec::{preset, Recompute};
use std::time::Instant;
fn main() {
    let cluster = Cluster::named("dgx-a100").unwrap();
    let series = published::all_series().into_iter().find(|s| s.family == "table-1").unwrap();
    for row in &series.rows {
        let q = series.question(row).unwrap();
        let work = q.workload();
        let paper = predict(&work).unwrap();
        let mut request = Request::new(&cluster, &q.model, work.layout.ranks(), work.batch, Stack::Sc21.switches());
        request.recompute = vec![Recompute::FULL];
        let now = Instant::now();
        let ranking = search(&request).unwrap();
        let b = &ranking.best[0];
        let mut modern = request.clone();
        modern.recompute = vec![Recompute::None, Recompute::Selective, Recompute::FULL];
        modern.switches = vec![Stack::Modern.switches()];
        let m = search(&modern).unwrap();
        println!("{:8} paper {} {:.2}s best {} {:?} {:.2}s ratio {:.3}  legal {} fit {} in {:?}; modern {} {:?} {:.2}s gain {:.2}", row.label, work.words(), paper.seconds, request.workload(&b.candidate).words(), b.candidate.layout.schedule, b.prediction.seconds, paper.seconds/b.prediction.seconds, ranking.legal, ranking.fitting, now.elapsed(), modern.workload(&m.best[0].candidate).words(), m.best[0].candidate.layout.recompute, m.best[0].prediction.seconds, paper.seconds/m.best[0].prediction.seconds);
        println!("     paper breakdown {:?}", paper.breakdown.named().map(|(n,s)| format!("{n} {:.1}%", 100.*s/paper.seconds)));
        println!("     best  breakdown {:?}", b.prediction.breakdown.named().map(|(n,s)| format!("{n} {:.1}%", 100.*s/b.prediction.seconds)));
        for r in ranking.best.iter().take(3) { println!("       {} {:?} est {:.2} sim {:.2}", request.workload(&r.candidate).words(), r.candidate.layout.schedule, r.candidate.estimate.seconds, r.prediction.seconds); }
    }
    let model = preset("gpt-1t").unwrap();
    let now = Instant::now();
    let r = search(&Request::new(&cluster, &model, 3072, 3072, Stack::Sc21.switches())).unwrap();
    println!("1T search {:?} legal {} fit {}", now.elapsed(), r.legal, r.fitting);
    let now = Instant::now();
    let mut req = Request::new(&cluster, &model, 3072, 3072, Stack::Modern.switches());
    let r = search(&req).unwrap();
    println!("1T modern search {:?} legal {} fit {}", now.elapsed(), r.legal, r.fitting);
    for n in neighbours(&req.workload(&r.best[0].candidate)).unwrap() { println!("{n:?}"); }
    req.simulated = 1;
    let (layout, b) = parse_layout("t=8,p=64,d=6,b=1").unwrap();
    let w = Workload { cluster: &cluster, model: &model, layout, microbatch: b, batch: 3072, switches: Stack::Sc21.switches() };
    let now = Instant::now();
    predict(&w).unwrap();
    println!("step {:?}", now.elapsed());
}
