use henge_plan::published::{bubble_rows, summary, validate};
fn main() {
    let families = validate().unwrap();
    for f in &families {
        println!("{} {:?}", f.series.family, f.median_and_worst().map(|(a,b)| (100.0*a, 100.0*b)));
        for r in &f.rows {
            print!("   {:26} {:8.2} {:8.2} {:+6.1}%", r.label, r.published, r.predicted, 100.0*r.error);
            if let Some((a,b)) = r.range { print!("  range {a:.1} to {b:.1} {}", r.within_range()); }
            if let Some((a,b)) = r.memory { print!("  mem {:.1} of {:.1}", a/1e9/1.0737, b/1e9/1.0737); }
            println!();
        }
    }
    println!("{:?}", summary(&families));
    for r in bubble_rows() { println!("{} {} {:.4} {:.4} time err {:.3}%", r.label, r.schedule, r.published, r.simulated, 100.0*r.time_error()); }
}
