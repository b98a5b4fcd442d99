//! Results, kernels, scopes and cancellation of tasks.

use std::sync::mpsc;

use panoply_mesh::{Future, In, InOut, Mesh, Out};
use panoply_tensor::{Device, Result, Tensor};

use crate::add_kernel;

fn on_cpu(test: impl FnOnce(&Mesh) -> Result<()>) {
    Device::get("cpu").unwrap().scope(|| test(&Mesh::open()?)).unwrap();
}

#[test]
fn result_of_a_task_is_an_argument_of_others() {
    on_cpu(|mesh| {
        let x = mesh.data(&Tensor::from_slice(&[3f32, 4.0], [2]))?;
        mesh.within("cpu,cpu:checked", |m| {
            let norm: Future = m.spawn("norm", In(&x), |x| x.square().sum(..).sqrt())?;
            let unit = m.spawn("unit", (In(&x), In(&norm)), |(x, norm)| x / norm)?;
            assert_eq!(m.fetch(&unit)?.to_vec::<f32>()?, [0.6, 0.8]);
            let wrong = m.spawn("wrong", In(&x), |x| x.reshape([3]))?;
            let after = m.spawn("after", In(&wrong), |x| x + 1.0)?;
            let error = m.fetch(&after).unwrap_err();
            assert!(error.message().starts_with("task wrong on cpu"), "{error}");
            assert!(error.message().ends_with("; 1 task after it was dropped"), "{error}");
            Ok(())
        })
    });
}

#[test]
fn kernel_is_a_task_with_the_access_of_its_signature() {
    on_cpu(|mesh| {
        let x = mesh.data(&Tensor::from_slice(&[1f32, 2.0, 3.0, 4.0], [4]))?;
        let y = mesh.data(&Tensor::from_slice(&[10f32; 8], [8]))?;
        for scope in ["cpu", "cpu:checked", "cpu,cpu:checked"] {
            mesh.within(scope, |m| {
                let before = m.fetch(&y)?;
                m.launch(add_kernel, (&x, y.view((..4,))?), 4)?;
                m.launch(add_kernel, (&x, y.view((4..,))?), 3)?;
                let after = (m.fetch(&y)? - &before).to_vec::<f32>()?;
                assert_eq!(after, [1.0, 2.0, 3.0, 4.0, 1.0, 2.0, 3.0, 0.0], "an element that is not written is kept");
                Ok(())
            })?;
        }
        assert_eq!(mesh.fetch(&x)?.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
        let error = mesh.launch(add_kernel, (1.0f32, &y), 8).unwrap_err();
        assert_eq!(error.message(), "task add: parameter from is a buffer; pass data or a view");
        let error = mesh.launch(add_kernel, &y, 8).unwrap_err();
        assert_eq!(error.message(), "task add: the kernel has 2 parameters, not 1");
        let error = mesh.launch(add_kernel, (&y, y.view((..4,))?), 4).unwrap_err();
        assert_eq!(error.message(), "task add: argument 1 overlaps an earlier one, and one of them is written");
        Ok(())
    });
}

#[test]
fn scope_without_a_device_lists_the_devices() {
    on_cpu(|mesh| {
        let count = |scope: &str| mesh.within(scope, |m| Ok(m.devices().len()));
        assert_eq!(count("cpu")?, 1);
        assert_eq!(count("cpu, cpu:checked,cpu")?, 2, "each device counts once");
        assert_eq!(count("cpu:*")?, 1, "variants are named explicitly");
        assert!(count("all")? >= 1);
        let cpu = Device::get("cpu")?;
        assert_eq!(mesh.within(&cpu, |m| Ok(m.devices()))?, vec![cpu.clone()]);
        assert_eq!(mesh.within(&vec![cpu.clone(), cpu], |m| Ok(m.devices().len()))?, 1);
        assert!(mesh.within(&Vec::<Device>::new(), |_| Ok(())).is_err());
        for scope in ["cpu:7", "cpu,nonsense", "nonsense:*", ""] {
            let error = mesh.within(scope, |_| Ok(())).unwrap_err();
            let listed = error.notes().iter().any(|note| note.starts_with("devices of this machine: "));
            assert!(listed && error.notes().iter().any(|note| note.contains("cpu")), "{scope}: {error:?}");
        }
        Ok(())
    });
}

#[test]
fn canceled_tasks_never_run() {
    on_cpu(|mesh| {
        let data = mesh.data(&Tensor::from_slice(&[0f32; 4], [4]))?;
        let (started, wait_for_start) = mpsc::channel();
        let (go, wait_to_go) = mpsc::channel::<()>();
        mesh.spawn("running", InOut(data.view((..2,))?), move |x| {
            started.send(()).expect("the test listens");
            wait_to_go.recv().expect("the test sends");
            *x = &*x + 1.0;
        })?;
        wait_for_start.recv().expect("the task starts");
        mesh.spawn("late", Out(&data), |x| assert!(x.check().is_err(), "canceled"))?;
        mesh.spawn("later", InOut(data.view((2..,))?), |x| assert!(x.check().is_err(), "canceled"))?;
        assert_eq!(mesh.cancel(), 2);
        go.send(()).expect("the task listens");
        assert_eq!(mesh.fetch(&data).unwrap_err().message(), "2 tasks were canceled");
        let other = mesh.data(&Tensor::from_slice(&[1f32], [1]))?;
        mesh.spawn("next", InOut(&other), |x| *x = &*x + 1.0)?;
        assert_eq!(mesh.fetch(&other)?.item::<f64>()?, 2.0, "the mesh goes on");
        Ok(())
    });
}
