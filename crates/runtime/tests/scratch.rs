mod present;
use panoply_runtime::*;
use std::sync::Arc;
#[test]
fn scratch() {
    let device = Device::get("vulkan:0").unwrap();
    for body in [
        "y[global_id.x] = max(x[global_id.x], -9.0f32)",
        "y[global_id.x] = min(x[global_id.x], 9.0f32)",
        "y[global_id.x] = add(x[global_id.x], 0.0f32)",
        "y[global_id.x] = fma(x[global_id.x], 2.0f32, 1.0f32)",
        "y[global_id.x] = fma(1.0f32,2.0f32,x[global_id.x])",
        "y[global_id.x] = mul(x[global_id.x], 0.0f32)",
        "y[global_id.x] = div(1.0f32, x[global_id.x])",
        "y[global_id.x] = sqrt(x[global_id.x])",
        "y[global_id.x] = round(x[global_id.x])",
        "y[global_id.x] = floor(x[global_id.x])",
        "y[global_id.x] = abs(x[global_id.x])",
        "y[global_id.x] = cast<f32>(cast<i32>(x[global_id.x]))",
        "y[global_id.x] = sin(x[global_id.x])",
        "y[global_id.x] = tan(x[global_id.x])",
        "y[global_id.x] = exp(x[global_id.x])",
        "y[global_id.x] = ln(x[global_id.x])",
        "y[global_id.x] = cast<f32>(cast<f16>(x[global_id.x]))",
        "y[global_id.x] = rem(x[global_id.x], 3.0f32)",
        "y[global_id.x] = select(lt(x[global_id.x],1.0f32), 1.0f32, 0.0f32)",
        "y[global_id.x] = select(not(lt(x[global_id.x],1.0f32)), 1.0f32, 0.0f32)",
        "y[global_id.x] = sub(x[global_id.x], x[global_id.x])",
        "y[global_id.x] = select(ne(x[global_id.x],x[global_id.x]), 1.0f32, 0.0f32)",
        "y[global_id.x] = tan(max(x[global_id.x], -9.0f32))",
        "y[global_id.x] = tan(min(max(x[global_id.x], -9.0f32),9.0f32))",
    ] {
        let text = format!("kernel k(x: &[f32], y: &out [f32]) {{\n    {body}\n}}\n");
        let kernel = panoply_ir::verify::verify(panoply_ir::text::parse(&text).unwrap()).unwrap();
        let input = [f32::NAN, f32::INFINITY, -f32::INFINITY, -0.0, 1e-40, -3.5, 1e30, 0.1, 2.5];
        let run = |d: &Device| {
            let x = d.buffer(&input).unwrap();
            let mut y = d.zeros::<f32>(9).unwrap();
            let p = d.prepare(&Arc::new(kernel.clone())).unwrap();
            d.submit(&[Work::Kernel {
                prepared: &p,
                grid: 9.into(),
                args: vec![LaunchArg::from(&x), LaunchArg::from(&mut y)],
            }])
            .unwrap();
            y.to_vec().unwrap()
        };
        let (a, b) = (run(&device), run(&Device::get("cpu").unwrap()));
        let same = a.iter().zip(&b).all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan());
        println!("{} {body}\n   {a:?}\n   {b:?}", if same { "ok  " } else { "DIFF" });
    }
}
