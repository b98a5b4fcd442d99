//! Types of instructions and registers.

/// A fundamental type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ty {
    Pred,
    B(u32),
    S(u32),
    U(u32),
    F(u32),
}

impl Ty {
    pub fn parse(name: &str) -> Option<Ty> {
        if name == "pred" {
            return Some(Ty::Pred);
        }
        let bits: u32 = name.get(1..)?.parse().ok().filter(|bits| [8, 16, 32, 64].contains(bits))?;
        match name.chars().next()? {
            'b' => Some(Ty::B(bits)),
            's' => Some(Ty::S(bits)),
            'u' => Some(Ty::U(bits)),
            'f' if bits > 8 => Some(Ty::F(bits)),
            _ => None,
        }
    }

    pub fn bits(self) -> u32 {
        match self {
            Ty::Pred => 1,
            Ty::B(bits) | Ty::S(bits) | Ty::U(bits) | Ty::F(bits) => bits,
        }
    }

    pub fn bytes(self) -> usize {
        (self.bits() / 8) as usize
    }

    /// Returns true if a register of another type can be an operand of this type: it has the same size, and floats and integers are not
    /// mixed.
    pub fn takes(self, register: Ty) -> bool {
        match (self, register) {
            (Ty::Pred, Ty::Pred) => true,
            (Ty::Pred, _) | (_, Ty::Pred) => false,
            (Ty::B(_), _) | (_, Ty::B(_)) => self.bits() == register.bits(),
            (Ty::F(_), Ty::F(_)) | (Ty::S(_) | Ty::U(_), Ty::S(_) | Ty::U(_)) => self.bits() == register.bits(),
            (Ty::F(_), _) | (_, Ty::F(_)) => false,
        }
    }

    /// Applies the relaxed rule of loads, stores and conversions: an integer or untyped register can be wider.
    pub fn takes_wider(self, register: Ty) -> bool {
        self.takes(register)
            || (!matches!(self, Ty::F(_) | Ty::Pred)
                && !matches!(register, Ty::F(_) | Ty::Pred)
                && register.bits() >= self.bits())
            // f16 values are in untyped registers.
            || (self == Ty::F(16) && register == Ty::B(16))
    }

    /// Returns the mask of the value's bits.
    pub fn mask(self) -> u64 {
        match self.bits() {
            64 => u64::MAX,
            bits => (1 << bits) - 1,
        }
    }

    /// Extends a value of this type to 64 bits.
    pub fn extend(self, value: u64) -> u64 {
        match self {
            Ty::S(bits) if bits < 64 => {
                let unused = 64 - bits;
                (((value << unused) as i64) >> unused) as u64
            }
            _ => value & self.mask(),
        }
    }
}
