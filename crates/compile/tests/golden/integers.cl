#pragma OPENCL FP_CONTRACT OFF
static char min_i8(char a, char b) { return a < b ? a : b; }
static short min_i16(short a, short b) { return a < b ? a : b; }
static int min_i32(int a, int b) { return a < b ? a : b; }
static long min_i64(long a, long b) { return a < b ? a : b; }
static uchar min_u8(uchar a, uchar b) { return a < b ? a : b; }
static ushort min_u16(ushort a, ushort b) { return a < b ? a : b; }
static uint min_u32(uint a, uint b) { return a < b ? a : b; }
static ulong min_u64(ulong a, ulong b) { return a < b ? a : b; }
static char max_i8(char a, char b) { return a > b ? a : b; }
static short max_i16(short a, short b) { return a > b ? a : b; }
static int max_i32(int a, int b) { return a > b ? a : b; }
static long max_i64(long a, long b) { return a > b ? a : b; }
static uchar max_u8(uchar a, uchar b) { return a > b ? a : b; }
static ushort max_u16(ushort a, ushort b) { return a > b ? a : b; }
static uint max_u32(uint a, uint b) { return a > b ? a : b; }
static ulong max_u64(ulong a, ulong b) { return a > b ? a : b; }
static char abs_i8(char a) { return a < 0 ? (char)(0 - (uint)a) : a; }
static short abs_i16(short a) { return a < 0 ? (short)(0 - (uint)a) : a; }
static int abs_i32(int a) { return a < 0 ? (int)(0 - (uint)a) : a; }
static long abs_i64(long a) { return a < 0 ? (long)(0 - (ulong)a) : a; }
static char div_i8(char a, char b) {
    const char d = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? 0 : b == -1 ? (char)(0 - (uint)a) : (char)(a / d);
}
static short div_i16(short a, short b) {
    const short d = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? 0 : b == -1 ? (short)(0 - (uint)a) : (short)(a / d);
}
static int div_i32(int a, int b) {
    const int d = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? 0 : b == -1 ? (int)(0 - (uint)a) : (int)(a / d);
}
static long div_i64(long a, long b) {
    const long d = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? 0 : b == -1 ? (long)(0 - (ulong)a) : (long)(a / d);
}
static uchar div_u8(uchar a, uchar b) { return b == 0 ? 0 : (uchar)(a / (b == 0 ? 1 : b)); }
static ushort div_u16(ushort a, ushort b) { return b == 0 ? 0 : (ushort)(a / (b == 0 ? 1 : b)); }
static uint div_u32(uint a, uint b) { return b == 0 ? 0 : (uint)(a / (b == 0 ? 1 : b)); }
static ulong div_u64(ulong a, ulong b) { return b == 0 ? 0 : (ulong)(a / (b == 0 ? 1 : b)); }
static char rem_i8(char a, char b) {
    const char d = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? a : b == -1 ? 0 : (char)(a % d);
}
static short rem_i16(short a, short b) {
    const short d = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? a : b == -1 ? 0 : (short)(a % d);
}
static int rem_i32(int a, int b) {
    const int d = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? a : b == -1 ? 0 : (int)(a % d);
}
static long rem_i64(long a, long b) {
    const long d = b == 0 || b == -1 ? 1 : b;
    return b == 0 ? a : b == -1 ? 0 : (long)(a % d);
}
static uchar rem_u8(uchar a, uchar b) { return b == 0 ? a : (uchar)(a % (b == 0 ? 1 : b)); }
static ushort rem_u16(ushort a, ushort b) { return b == 0 ? a : (ushort)(a % (b == 0 ? 1 : b)); }
static uint rem_u32(uint a, uint b) { return b == 0 ? a : (uint)(a % (b == 0 ? 1 : b)); }
static ulong rem_u64(ulong a, ulong b) { return b == 0 ? a : (ulong)(a % (b == 0 ? 1 : b)); }
kernel void integers_(
    global char *restrict data_i8_, const ulong data_i8_off, const ulong data_i8_len,
    global short *restrict data_i16_, const ulong data_i16_off, const ulong data_i16_len,
    global int *restrict data_i32_, const ulong data_i32_off, const ulong data_i32_len,
    global long *restrict data_i64_, const ulong data_i64_off, const ulong data_i64_len,
    global uchar *restrict data_u8_, const ulong data_u8_off, const ulong data_u8_len,
    global ushort *restrict data_u16_, const ulong data_u16_off, const ulong data_u16_len,
    global uint *restrict data_u32_, const ulong data_u32_off, const ulong data_u32_len,
    global ulong *restrict data_u64_, const ulong data_u64_off, const ulong data_u64_len,
    const ulong size0, const ulong size1, const ulong size2)
{
    const ulong gid0 = get_global_id(0);
    const ulong gid1 = get_global_id(1);
    const ulong gid2 = get_global_id(2);
    if (gid0 >= size0 || gid1 >= size1 || gid2 >= size2) return;
    data_i8_ += data_i8_off;
    data_i16_ += data_i16_off;
    data_i32_ += data_i32_off;
    data_i64_ += data_i64_off;
    data_u8_ += data_u8_off;
    data_u16_ += data_u16_off;
    data_u32_ += data_u32_off;
    data_u64_ += data_u64_off;
    const char t1 = (char)(gid0 < data_i64_len ? data_i64_[gid0] : 0L);
    const char t2 = (char)((uint)abs_i8((char)(~(char)(0 - (uint)(gid0 < data_i8_len ? data_i8_[gid0] : 0)))) + (uint)t1);
    const char t3 = max_i8(min_i8(rem_i8(div_i8((char)((uint)(char)((uint)t2 - (uint)t1) * (uint)t1), t1), t1), t1), t1);
    const char t4 = (char)((uint)(((t3 & t1) | t1) ^ t1) << (t1 & 7)) >> (t1 & 7);
    if (gid0 < data_i8_len) data_i8_[gid0] = (t4 < (-127 - 1)) ? (t4 / 3) : (char)((uint)t4 << 3);
    const short t5 = (short)(gid0 < data_u8_len ? data_u8_[gid0] : 0);
    const short t6 = (short)((uint)abs_i16((short)(~(short)(0 - (uint)(gid0 < data_i16_len ? data_i16_[gid0] : 0)))) + (uint)t5);
    const short t7 = max_i16(min_i16(rem_i16(div_i16((short)((uint)(short)((uint)t6 - (uint)t5) * (uint)t5), t5), t5), t5), t5);
    const short t8 = (short)((uint)(((t7 & t5) | t5) ^ t5) << (t5 & 15)) >> (t5 & 15);
    if (gid0 < data_i16_len) data_i16_[gid0] = (t8 < (-32767 - 1)) ? (t8 / 3) : (short)((uint)t8 << 3);
    const int t9 = (int)(gid0 < data_u16_len ? data_u16_[gid0] : 0);
    const int t10 = (int)((uint)(int)((uint)abs_i32(~(int)(0 - (uint)(gid0 < data_i32_len ? data_i32_[gid0] : 0))) + (uint)t9) - (uint)t9);
    const int t11 = ((max_i32(min_i32(rem_i32(div_i32((int)((uint)t10 * (uint)t9), t9), t9), t9), t9) & t9) | t9) ^ t9;
    const int t12 = (int)((uint)t11 << (t9 & 31)) >> (t9 & 31);
    if (gid0 < data_i32_len) data_i32_[gid0] = (t12 < (-2147483647 - 1)) ? (t12 / 3) : (int)((uint)t12 << 3);
    const long t13 = (long)(gid0 < data_u32_len ? data_u32_[gid0] : 0u);
    const long t14 = (long)((ulong)abs_i64(~(long)(0 - (ulong)(gid0 < data_i64_len ? data_i64_[gid0] : 0L))) + (ulong)t13);
    const long t15 = min_i64(rem_i64(div_i64((long)((ulong)(long)((ulong)t14 - (ulong)t13) * (ulong)t13), t13), t13), t13);
    const long t16 = (long)((ulong)(((max_i64(t15, t13) & t13) | t13) ^ t13) << (t13 & 63)) >> (t13 & 63);
    if (gid0 < data_i64_len) data_i64_[gid0] = (t16 < (-9223372036854775807L - 1)) ? (t16 / 3L) : (long)((ulong)t16 << 3);
    const uchar t17 = (uchar)(gid0 < data_u64_len ? data_u64_[gid0] : 0UL);
    const uchar t18 = (uchar)((uint)(uchar)(~(uchar)(0 - (uint)(gid0 < data_u8_len ? data_u8_[gid0] : 0))) + (uint)t17);
    const uchar t19 = max_u8(min_u8(rem_u8(div_u8((uchar)((uint)(uchar)((uint)t18 - (uint)t17) * (uint)t17), t17), t17), t17), t17);
    const uchar t20 = (uchar)((uint)(((t19 & t17) | t17) ^ t17) << (t17 & 7)) >> (t17 & 7);
    if (gid0 < data_u8_len) data_u8_[gid0] = (t20 < 128) ? (t20 / 3) : (uchar)((uint)t20 << 3);
    const char t21 = (char)(gid0 < data_i64_len ? data_i64_[gid0] : 0L);
    const char t22 = (char)((uint)abs_i8((char)(~(char)(0 - (uint)(gid0 < data_i8_len ? data_i8_[gid0] : 0)))) + (uint)t21);
    const char t23 = max_i8(min_i8(rem_i8(div_i8((char)((uint)(char)((uint)t22 - (uint)t21) * (uint)t21), t21), t21), t21), t21);
    const char t24 = (char)((uint)(((t23 & t21) | t21) ^ t21) << (t21 & 7)) >> (t21 & 7);
    const ushort t25 = (ushort)((t24 < (-127 - 1)) ? (t24 / 3) : (char)((uint)t24 << 3));
    const ushort t26 = (ushort)((uint)(ushort)(~(ushort)(0 - (uint)(gid0 < data_u16_len ? data_u16_[gid0] : 0))) + (uint)t25);
    const ushort t27 = min_u16(rem_u16(div_u16((ushort)((uint)(ushort)((uint)t26 - (uint)t25) * (uint)t25), t25), t25), t25);
    const ushort t28 = (ushort)((uint)(((max_u16(t27, t25) & t25) | t25) ^ t25) << (t25 & 15)) >> (t25 & 15);
    if (gid0 < data_u16_len) data_u16_[gid0] = (t28 < 32768) ? (t28 / 3) : (ushort)((uint)t28 << 3);
    const short t29 = (short)(gid0 < data_u8_len ? data_u8_[gid0] : 0);
    const short t30 = (short)((uint)abs_i16((short)(~(short)(0 - (uint)(gid0 < data_i16_len ? data_i16_[gid0] : 0)))) + (uint)t29);
    const short t31 = min_i16(rem_i16(div_i16((short)((uint)(short)((uint)t30 - (uint)t29) * (uint)t29), t29), t29), t29);
    const short t32 = (short)((uint)(((max_i16(t31, t29) & t29) | t29) ^ t29) << (t29 & 15)) >> (t29 & 15);
    const uint t33 = (uint)((t32 < (-32767 - 1)) ? (t32 / 3) : (short)((uint)t32 << 3));
    const uint t34 = rem_u32(div_u32((((~(0 - (gid0 < data_u32_len ? data_u32_[gid0] : 0u))) + t33) - t33) * t33, t33), t33);
    const uint t35 = ((((max_u32(min_u32(t34, t33), t33) & t33) | t33) ^ t33) << (t33 & 31)) >> (t33 & 31);
    if (gid0 < data_u32_len) data_u32_[gid0] = (t35 < 2147483648u) ? (t35 / 3u) : (t35 << 3);
    const int t36 = (int)(gid0 < data_u16_len ? data_u16_[gid0] : 0);
    const int t37 = (int)((uint)(int)((uint)abs_i32(~(int)(0 - (uint)(gid0 < data_i32_len ? data_i32_[gid0] : 0))) + (uint)t36) - (uint)t36);
    const int t38 = (max_i32(min_i32(rem_i32(div_i32((int)((uint)t37 * (uint)t36), t36), t36), t36), t36) & t36) | t36;
    const int t39 = (int)((uint)(t38 ^ t36) << (t36 & 31)) >> (t36 & 31);
    const ulong t40 = (ulong)((t39 < (-2147483647 - 1)) ? (t39 / 3) : (int)((uint)t39 << 3));
    const ulong t41 = rem_u64(div_u64((((~(0 - (gid0 < data_u64_len ? data_u64_[gid0] : 0UL))) + t40) - t40) * t40, t40), t40);
    const ulong t42 = ((((max_u64(min_u64(t41, t40), t40) & t40) | t40) ^ t40) << (t40 & 63)) >> (t40 & 63);
    if (gid0 < data_u64_len) data_u64_[gid0] = (t42 < 9223372036854775808UL) ? (t42 / 3UL) : (t42 << 3);
    if (gid0 < data_i8_len) data_i8_[gid0] = (char)popcount((uchar)(gid0 < data_i8_len ? data_i8_[gid0] : 0));
    if (gid0 < data_i16_len) data_i16_[gid0] = (short)popcount((ushort)(gid0 < data_i16_len ? data_i16_[gid0] : 0));
    if (gid0 < data_i32_len) data_i32_[gid0] = (int)popcount((uint)(gid0 < data_i32_len ? data_i32_[gid0] : 0));
    if (gid0 < data_i64_len) data_i64_[gid0] = (long)popcount((ulong)(gid0 < data_i64_len ? data_i64_[gid0] : 0L));
    if (gid0 < data_u8_len) data_u8_[gid0] = (uchar)popcount(gid0 < data_u8_len ? data_u8_[gid0] : 0);
    if (gid0 < data_u16_len) data_u16_[gid0] = (ushort)popcount(gid0 < data_u16_len ? data_u16_[gid0] : 0);
    if (gid0 < data_u32_len) data_u32_[gid0] = (uint)popcount(gid0 < data_u32_len ? data_u32_[gid0] : 0u);
    if (gid0 < data_u64_len) data_u64_[gid0] = (ulong)popcount(gid0 < data_u64_len ? data_u64_[gid0] : 0UL);
    const ulong t43 = (ulong)popcount(gid0);
    if (t43 < data_u32_len) data_u32_[t43] = 0u;
}
