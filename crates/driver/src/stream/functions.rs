//! The functions that CUDA and HIP have in common.

use crate::library::{DevicePtr, Handle, functions};
use std::ffi::{c_char, c_void};

functions! {
    /// The functions of a driver library; NVIDIA's and AMD's documentation describe them. Functions that older drivers lack are an
    /// `Option`.
    Functions
    needed {
        init(u32) "cuInit" "hipInit";
        driver_version(*mut i32) "cuDriverGetVersion" "hipDriverGetVersion";
        device_count(*mut i32) "cuDeviceGetCount" "hipGetDeviceCount";
        device(*mut i32, i32) "cuDeviceGet" "hipDeviceGet";
        device_name(*mut c_char, i32, i32) "cuDeviceGetName" "hipDeviceGetName";
        device_memory(*mut usize, i32) "cuDeviceTotalMem_v2" "hipDeviceTotalMem";
        attribute(*mut i32, i32, i32) "cuDeviceGetAttribute" "hipDeviceGetAttribute";
        free_memory(*mut usize, *mut usize) "cuMemGetInfo_v2" "hipMemGetInfo";
        allocate(*mut DevicePtr, usize) "cuMemAlloc_v2" "hipMalloc";
        free(DevicePtr) "cuMemFree_v2" "hipFree";
        pin(*mut *mut c_void, usize, u32) "cuMemHostAlloc" "hipHostMalloc";
        unpin(*mut c_void) "cuMemFreeHost" "hipHostFree";
        upload(DevicePtr, *const c_void, usize, Handle) "cuMemcpyHtoDAsync_v2" "hipMemcpyHtoDAsync";
        download(*mut c_void, DevicePtr, usize, Handle) "cuMemcpyDtoHAsync_v2" "hipMemcpyDtoHAsync";
        copy(DevicePtr, DevicePtr, usize, Handle) "cuMemcpyDtoDAsync_v2" "hipMemcpyDtoDAsync";
        fill_8(DevicePtr, u8, usize, Handle) "cuMemsetD8Async" "hipMemsetD8Async";
        fill_16(DevicePtr, u16, usize, Handle) "cuMemsetD16Async" "hipMemsetD16Async";
        fill_32(DevicePtr, u32, usize, Handle) "cuMemsetD32Async" "hipMemsetD32Async";
        stream_create(*mut Handle, u32) "cuStreamCreate" "hipStreamCreateWithFlags";
        stream_destroy(Handle) "cuStreamDestroy_v2" "hipStreamDestroy";
        stream_synchronize(Handle) "cuStreamSynchronize" "hipStreamSynchronize";
        stream_wait(Handle, Handle, u32) "cuStreamWaitEvent" "hipStreamWaitEvent";
        event_create(*mut Handle, u32) "cuEventCreate" "hipEventCreateWithFlags";
        event_record(Handle, Handle) "cuEventRecord" "hipEventRecord";
        event_query(Handle) "cuEventQuery" "hipEventQuery";
        event_synchronize(Handle) "cuEventSynchronize" "hipEventSynchronize";
        event_elapsed(*mut f32, Handle, Handle) "cuEventElapsedTime" "hipEventElapsedTime";
        event_destroy(Handle) "cuEventDestroy_v2" "hipEventDestroy";
        module_load(*mut Handle, *const c_void) "cuModuleLoadData" "hipModuleLoadData";
        module_unload(Handle) "cuModuleUnload" "hipModuleUnload";
        module_function(*mut Handle, Handle, *const c_char) "cuModuleGetFunction" "hipModuleGetFunction";
        launch(
            Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *const *const c_void, *const *const c_void,
        ) "cuLaunchKernel" "hipModuleLaunchKernel";
    }
    optional {
        allocate_ordered(*mut DevicePtr, usize, Handle) "cuMemAllocAsync" "hipMallocAsync";
        free_ordered(DevicePtr, Handle) "cuMemFreeAsync" "hipFreeAsync";
        graph_create(*mut Handle, u32) "cuGraphCreate" "hipGraphCreate";
        graph_add(*mut Handle, Handle, *const Handle, usize, *const c_void) "cuGraphAddKernelNode" "hipGraphAddKernelNode";
        graph_instantiate(*mut Handle, Handle, u64) "cuGraphInstantiateWithFlags" "hipGraphInstantiateWithFlags";
        graph_change(Handle, Handle, *const c_void) "cuGraphExecKernelNodeSetParams" "hipGraphExecKernelNodeSetParams";
        graph_launch(Handle, Handle) "cuGraphLaunch" "hipGraphLaunch";
        graph_exec_destroy(Handle) "cuGraphExecDestroy" "hipGraphExecDestroy";
        graph_destroy(Handle) "cuGraphDestroy" "hipGraphDestroy";
    }
}
