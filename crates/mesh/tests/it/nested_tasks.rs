//! Tasks that spawn tasks and wait for them.

use std::sync::mpsc;

use panoply_mesh::{Future, In, InOut, Mesh, Out};
use panoply_tensor::{Device, Result, Tensor};

fn on_cpu(test: impl FnOnce(&Mesh) -> Result<()>) {
    Device::get("cpu").unwrap().scope(|| test(&Mesh::open()?)).unwrap();
}

/// Returns the sum of a vector by a tree of nested tasks.
fn tree_sum(x: &Tensor) -> Result<Tensor> {
    let length = x.shape()?.dims()[0];
    if length <= 2 {
        return Ok(x.sum(..));
    }
    let m = Mesh::current()?;
    let x = m.data(x)?;
    let half = |range: std::ops::Range<usize>| m.spawn("half", In(x.view((range,))?), tree_sum);
    let (left, right): (Future, Future) = (half(0..length / 2)?, half(length / 2..length)?);
    Ok(m.fetch(&left)? + m.fetch(&right)?)
}

#[test]
fn nested_tasks_run_on_the_devices_of_their_parent() {
    on_cpu(|mesh| {
        let values: Vec<f32> = (0..37).map(|at| at as f32).collect();
        let serial = mesh.serial()?;
        // A single device must run the tasks that its own task waits for.
        for (mesh, scope) in [(mesh, "cpu"), (mesh, "cpu:checked"), (mesh, "cpu,cpu:checked"), (&serial, "cpu")] {
            let x = mesh.data(&Tensor::from_slice(&values, [37]))?;
            let (send, receive) = mpsc::channel();
            mesh.within(scope, |m| {
                let sums: Vec<Future> = (0..3).map(|_| m.spawn("sum", In(&x), tree_sum)).collect::<Result<_>>()?;
                for sum in sums {
                    assert_eq!(m.fetch(&sum)?.item::<f64>()?, 666.0, "{scope}");
                }
                m.spawn("scope", (), move |()| {
                    send.send(Mesh::current().map(|m| m.devices().len())).expect("the test listens");
                })?;
                m.wait()
            })?;
            assert_eq!(receive.recv().expect("the task ran")?, scope.split(',').count());
        }
        assert!(Mesh::current().is_err(), "this thread runs no task");
        Ok(())
    });
}

#[test]
fn task_ends_after_the_tasks_that_it_spawned() {
    on_cpu(|mesh| {
        let data = mesh.data(&Tensor::from_slice(&[1f32], [1]))?;
        let (send, receive) = mpsc::channel();
        mesh.within("cpu,cpu:checked", |m| {
            m.spawn("outer", InOut(&data), move |x| -> Result<()> {
                let m = Mesh::current()?;
                let own = m.data(x)?;
                let add = |to: &mut Tensor| *to = &*to + 1.0;
                m.spawn("first", InOut(&own), add)?;
                m.spawn("second", InOut(&own), move |_| send.send(()).expect("the test listens"))?;
                *x = m.fetch(&own)?;
                m.wait()
            })?;
            assert_eq!(m.fetch(&data)?.to_vec::<f32>()?, [2.0]);
            receive.try_recv().expect("the nested task ran before its parent ended");

            // The failure of a nested task is one of its parent.
            m.spawn("parent", InOut(&data), |x| -> Result<()> {
                let m = Mesh::current()?;
                let own = m.data(x)?;
                m.spawn("child", InOut(&own), |x| assert!(x.check().is_err(), "no luck"))?;
                m.spawn("grandchild", InOut(&own), |_| ())
            })?;
            m.spawn("after", InOut(&data), |_| ())?;
            let message = m.fetch(&data).unwrap_err().message().to_string();
            let child = "child on cpu: panicked: no luck; 1 task after it was dropped";
            let checked = child.replace("cpu", "cpu:checked");
            assert!(message.starts_with("task parent on cpu"), "{message}");
            assert!(message.contains(child) || message.contains(&checked), "{message}");
            assert!(message.ends_with("; 1 task after it was dropped"), "{message}");
            Ok(())
        })
    });
}

#[test]
fn nested_tasks_cannot_access_data_from_outside() {
    on_cpu(|mesh| {
        let data = mesh.data(&Tensor::from_slice(&[0f32; 4], [4]))?;
        let other = mesh.data(&Tensor::from_slice(&[0f32; 4], [4]))?;
        let outside = other.clone();
        mesh.spawn("outer", InOut(&data), move |_| Mesh::current()?.spawn("inner", Out(&outside), |_| ()))?;
        let error = mesh.fetch(&data).unwrap_err();
        let message = "task outer on cpu: task inner: a task cannot wait for tasks of its mesh, which can depend on it";
        assert!(error.message().starts_with(message), "{error}");
        Ok(())
    });
}
