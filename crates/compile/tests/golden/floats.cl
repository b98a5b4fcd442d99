#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL FP_CONTRACT OFF
static float min_f32(float a, float b) { return a != a || a < b ? a : b; }
static double min_f64(double a, double b) { return a != a || a < b ? a : b; }
static float max_f32(float a, float b) { return a != a || a > b ? a : b; }
static double max_f64(double a, double b) { return a != a || a > b ? a : b; }
static long i64_from_f32(float x) { return x >= 9.223372e18f ? 9223372036854775807L : x <= -9.223372e18f ? (-9223372036854775807L - 1) : x != x ? 0 : (long)x; }
static uchar u8_from_f32(float x) { return x >= 256.0f ? 255 : !(x > 0) ? 0 : (uchar)x; }
static long i64_from_f64(double x) { return x >= 9.223372036854776e18 ? 9223372036854775807L : x <= -9.223372036854776e18 ? (-9223372036854775807L - 1) : x != x ? 0 : (long)x; }
static uchar u8_from_f64(double x) { return x >= 256.0 ? 255 : !(x > 0) ? 0 : (uchar)x; }
kernel void floats_(
    global long *restrict ints_, const ulong ints_off, const ulong ints_len,
    global uchar *restrict flags_, const ulong flags_off, const ulong flags_len,
    global float *restrict data_f32_, const ulong data_f32_off, const ulong data_f32_len,
    global double *restrict data_f64_, const ulong data_f64_off, const ulong data_f64_len,
    const ulong size0, const ulong size1, const ulong size2)
{
    const ulong gid0 = get_global_id(0);
    const ulong gid1 = get_global_id(1);
    const ulong gid2 = get_global_id(2);
    if (gid0 >= size0 || gid1 >= size1 || gid2 >= size2) return;
    ints_ += ints_off;
    flags_ += flags_off;
    data_f32_ += data_f32_off;
    data_f64_ += data_f64_off;
    const float t1 = gid0 < data_f32_len ? data_f32_[gid0] : 0.0f;
    const float t2 = rint(ceil(floor(sqrt(erf(tanh(atan(tan(cos(sin(expm1(log1p(log2(log(exp2(exp(fabs(-t1)))))))))))))))));
    const float t3 = fma(pow(max_f32(min_f32(fmod((((trunc(t2) + t1) - t1) * t1) / t1, t1), t1), t1), t1), t1, t1);
    if (gid0 < data_f32_len) data_f32_[gid0] = t3 + (float)u8_from_f32(t3);
    const float t4 = gid0 < data_f32_len ? data_f32_[gid0] : 0.0f;
    const float t5 = rint(ceil(floor(sqrt(erf(tanh(atan(tan(cos(sin(expm1(log1p(log2(log(exp2(exp(fabs(-t4)))))))))))))))));
    const long t6 = i64_from_f32(fma(pow(max_f32(min_f32(fmod((((trunc(t5) + t4) - t4) * t4) / t4, t4), t4), t4), t4), t4, t4));
    if (gid0 < ints_len) ints_[gid0] = t6;
    const float t7 = gid0 < data_f32_len ? data_f32_[gid0] : 0.0f;
    const float t8 = rint(ceil(floor(sqrt(erf(tanh(atan(tan(cos(sin(expm1(log1p(log2(log(exp2(exp(fabs(-t7)))))))))))))))));
    const bool t9 = gid0 < flags_len ? (flags_[gid0] != 0) : false;
    const bool t10 = fma(pow(max_f32(min_f32(fmod((((trunc(t8) + t7) - t7) * t7) / t7, t7), t7), t7), t7), t7, t7) <= t7;
    if (gid0 < flags_len) flags_[gid0] = (t9 && t10) != t9;
    const double t11 = gid0 < data_f64_len ? data_f64_[gid0] : 0.0;
    const double t12 = ceil(floor(sqrt(erf(tanh(atan(tan(cos(sin(expm1(log1p(log2(log(exp2(exp(fabs(-t11))))))))))))))));
    const double t13 = fma(pow(max_f64(min_f64(fmod((((trunc(rint(t12)) + t11) - t11) * t11) / t11, t11), t11), t11), t11), t11, t11);
    if (gid0 < data_f64_len) data_f64_[gid0] = t13 + (double)u8_from_f64(t13);
    const double t14 = gid0 < data_f64_len ? data_f64_[gid0] : 0.0;
    const double t15 = ceil(floor(sqrt(erf(tanh(atan(tan(cos(sin(expm1(log1p(log2(log(exp2(exp(fabs(-t14))))))))))))))));
    const double t16 = fma(pow(max_f64(min_f64(fmod((((trunc(rint(t15)) + t14) - t14) * t14) / t14, t14), t14), t14), t14), t14, t14);
    if (gid0 < ints_len) ints_[gid0] = i64_from_f64(t16);
    const bool t17 = gid0 < flags_len ? (flags_[gid0] != 0) : false;
    const double t18 = gid0 < data_f64_len ? data_f64_[gid0] : 0.0;
    const double t19 = ceil(floor(sqrt(erf(tanh(atan(tan(cos(sin(expm1(log1p(log2(log(exp2(exp(fabs(-t18))))))))))))))));
    const double t20 = fma(pow(max_f64(min_f64(fmod((((trunc(rint(t19)) + t18) - t18) * t18) / t18, t18), t18), t18), t18), t18, t18);
    if (gid0 < flags_len) flags_[gid0] = (t17 && (t20 <= t18)) != t17;
}
