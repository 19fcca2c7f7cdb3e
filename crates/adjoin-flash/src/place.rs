//! Places where vectors are compared.

/// Where vectors are compared, from the inside out; pages travel that far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// Next to the page buffers of a LUN (NDSearch).
    Lun,
    /// At the pins of a chip (DeepStore per chip).
    Chip,
    /// At the end of a channel (DeepStore per channel).
    Channel,
    /// On an FPGA that the device's private link connects (SmartSSD).
    Fpga,
    /// On the machine that contains the device.
    Host,
}
