//! Views of device memory: pointer, length, element type, device.

use henge_spec::DType;
use std::marker::PhantomData;

/// Where a buffer lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// Host memory.
    Cpu,
    /// A CUDA device by its ordinal.
    Cuda(u32),
}

/// A shared view of `len` elements.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    pointer: *const u8,
    len: usize,
    dtype: DType,
    device: Device,
    owner: PhantomData<&'a [u8]>,
}

/// An exclusive view of `len` elements.
#[derive(Debug)]
pub struct ViewMut<'a> {
    pointer: *mut u8,
    len: usize,
    dtype: DType,
    device: Device,
    owner: PhantomData<&'a mut [u8]>,
}

// SAFETY: a view is a slice by another name; it is as free to cross threads as `&[T]`.
unsafe impl Send for View<'_> {}
// SAFETY: as above, for `&mut [T]`.
unsafe impl Send for ViewMut<'_> {}

impl<'a> View<'a> {
    /// A view of host memory.
    pub fn of<T: crate::Real>(data: &'a [T]) -> Self {
        Self {
            pointer: data.as_ptr().cast(),
            len: data.len(),
            dtype: T::DTYPE,
            device: Device::Cpu,
            owner: PhantomData,
        }
    }
}

macro_rules! parts {
    ($view:ident, $pointer:ty) => {
        impl<'a> $view<'a> {
            /// A view from its parts.
            ///
            /// # Safety
            /// `pointer` must address `len` elements of `dtype` on `device`, valid for
            /// `'a` under the borrowing rules of the view's kind.
            pub unsafe fn from_parts(pointer: $pointer, len: usize, dtype: DType, device: Device) -> Self {
                Self { pointer, len, dtype, device, owner: PhantomData }
            }
            /// First byte.
            pub fn pointer(&self) -> $pointer {
                self.pointer
            }
            /// Number of elements.
            pub fn len(&self) -> usize {
                self.len
            }
            /// Whether there are no elements.
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }
            /// Number of bytes.
            pub fn bytes(&self) -> usize {
                self.len * self.dtype.bytes()
            }
            /// Element type.
            pub fn dtype(&self) -> DType {
                self.dtype
            }
            /// Where it lives.
            pub fn device(&self) -> Device {
                self.device
            }
        }
    };
}

parts!(View, *const u8);
parts!(ViewMut, *mut u8);

impl<'a> ViewMut<'a> {
    /// A view of host memory.
    pub fn of<T: crate::Real>(data: &'a mut [T]) -> Self {
        Self {
            pointer: data.as_mut_ptr().cast(),
            len: data.len(),
            dtype: T::DTYPE,
            device: Device::Cpu,
            owner: PhantomData,
        }
    }
}

/// Something that a message can carry: all its memory is one view.
pub trait Transfer: Send {
    /// The whole of its memory.
    fn view_mut(&mut self) -> ViewMut<'_>;
}
