use panoply_compile::{opt, render};
use panoply_ir::kernel::Param;
use panoply_ir::random::{self, Given};
#[test]
fn text() {
    let Ok(path) = std::env::var("IR_FILE") else { return };
    let k = panoply_ir::text::parse(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let k = panoply_ir::verify::verify(k).unwrap();
    let mut t = panoply_ir::Target { f64: true, ..panoply_ir::Target::opencl_minimum() };
    t.f16 = std::env::var("NATIVE").is_ok();
    std::fs::write(path.replace(".ir", ".cl"), render::render(&k, &t).unwrap().source).unwrap();
}
fn hex(b: &[u8]) -> String {
    b.iter().map(|x| format!("{x:02x}")).collect()
}
#[test]
fn dump() {
    let Ok(dir) = std::env::var("DUMP_DIR") else { return };
    let n: u64 = std::env::var("DUMP_N").unwrap().parse().unwrap();
    let bits: u32 = std::env::var("BITS").unwrap_or("64".into()).parse().unwrap();
    let o = std::env::var("OPT").is_ok();
    for seed in 0..n {
        let case = random::case(seed, &random::Options { transcendentals: false, ..Default::default() });
        let t = panoply_ir::Target {
            f64: true,
            f16: std::env::var("NATIVE").is_ok(),
            max_group: [1024; 3],
            max_group_items: 1024,
            shared_bytes: 1 << 20,
            ..panoply_ir::Target::opencl_minimum()
        };
        let exp = case.interpret().unwrap();
        let k = if o { opt::optimize(case.kernel.clone(), &t, &Default::default()) } else { case.kernel.clone() };
        let r = match render::render_with(&k, &t, &render::Options { index_bits: bits }) {
            Ok(r) => r,
            Err(e) => {
                println!("{seed} {e}");
                continue;
            }
        };
        let mut s = format!("{} {:?} {:?} {}\n", r.entry, case.grid, case.group, k.group.is_some())
            .replace(['[', ']'], "")
            .replace(", ", ",");
        for ((p, g), e) in k.params.iter().zip(&case.args).zip(&exp) {
            match (p, g) {
                (Param::Buffer(m), Given::Buffer(b)) => {
                    s += &format!("b {} {} {}\n", k.mem(*m).dtype, hex(b), hex(e))
                        .replace("  ", " - ")
                        .replace(" \n", " -\n")
                }
                (_, Given::Scalar(v)) => s += &format!("s {} {}\n", v.dtype, v.bits),
                (_, Given::Index(v)) => s += &format!("i index {v}\n"),
                _ => unreachable!(),
            }
        }
        std::fs::write(format!("{dir}/{seed}.args"), s).unwrap();
        std::fs::write(format!("{dir}/{seed}.cl"), r.source).unwrap();
    }
}
#[test]
fn timing() {
    if std::env::var("TIMING").is_err() {
        return;
    }
    let t = panoply_ir::Target::opencl_minimum();
    let cases: Vec<_> = (0..300).map(|s| random::case(s, &Default::default())).collect();
    let lines: usize = cases.iter().map(|c| c.kernel.to_string().lines().count()).sum();
    let start = std::time::Instant::now();
    for c in &cases {
        std::hint::black_box(panoply_ir::verify::verify((*c.kernel).clone()).unwrap());
    }
    println!("verify {:?}", start.elapsed() / 300);
    for pass in opt::PASSES {
        let start = std::time::Instant::now();
        for c in &cases {
            std::hint::black_box(pass.apply(c.kernel.clone(), &t, &Default::default()));
        }
        println!("{} {:?}", pass.name, start.elapsed() / 300);
    }
    let start = std::time::Instant::now();
    for c in &cases {
        std::hint::black_box(opt::optimize(c.kernel.clone(), &t, &Default::default()));
    }
    println!("all {:?} for {} lines each", start.elapsed() / 300, lines / 300);
}
