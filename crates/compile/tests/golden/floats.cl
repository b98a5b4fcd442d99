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
    const float t2 = atan(tan(cos(sin(expm1(log1p(log2(log(exp2(exp(fabs(-t1)))))))))));
    const float t3 = fabs(t2);
    const float t4 = ((10.0f < t3) ? 10.0f : t3) * (-2.0f);
    const float t5 = fma(t4, 1.442695f, 12582912.0f);
    const float t6 = t5 - 12582912.0f;
    const float t7 = fma(t6, 0.00021219444f, fma(t6, -0.6933594f, t4));
    const float t8 = fma(fma(fma(fma(0.00019763438f, t7, 0.001393234f), t7, 0.008333544f), t7, 0.041666493f), t7, 0.16666666f);
    const float t9 = fma(fma(t8, t7, 0.5f), t7 * t7, t7);
    const float t10 = as_float((as_uint(t5) << 23) + 1065353216u);
    const uint t11 = (as_uint(fma(t10, t9, t10 - 1.0f) / fma(t10, t9, t10 + 1.0f)) & 2147483647u) | (as_uint(t2) & 2147483648u);
    const float t12 = min_f32(fmod((((trunc(rint(ceil(floor(sqrt(erf(as_float(t11))))))) + t1) - t1) * t1) / t1, t1), t1);
    const float t13 = fma(pow(max_f32(t12, t1), t1), t1, t1);
    if (gid0 < data_f32_len) data_f32_[gid0] = t13 + (float)u8_from_f32(t13);
    const float t14 = gid0 < data_f32_len ? data_f32_[gid0] : 0.0f;
    const float t15 = atan(tan(cos(sin(expm1(log1p(log2(log(exp2(exp(fabs(-t14)))))))))));
    const float t16 = fabs(t15);
    const float t17 = ((10.0f < t16) ? 10.0f : t16) * (-2.0f);
    const float t18 = fma(t17, 1.442695f, 12582912.0f);
    const float t19 = t18 - 12582912.0f;
    const float t20 = fma(t19, 0.00021219444f, fma(t19, -0.6933594f, t17));
    const float t21 = fma(fma(fma(fma(0.00019763438f, t20, 0.001393234f), t20, 0.008333544f), t20, 0.041666493f), t20, 0.16666666f);
    const float t22 = fma(fma(t21, t20, 0.5f), t20 * t20, t20);
    const float t23 = as_float((as_uint(t18) << 23) + 1065353216u);
    const uint t24 = (as_uint(fma(t23, t22, t23 - 1.0f) / fma(t23, t22, t23 + 1.0f)) & 2147483647u) | (as_uint(t15) & 2147483648u);
    const float t25 = min_f32(fmod((((trunc(rint(ceil(floor(sqrt(erf(as_float(t24))))))) + t14) - t14) * t14) / t14, t14), t14);
    if (gid0 < ints_len) ints_[gid0] = i64_from_f32(fma(pow(max_f32(t25, t14), t14), t14, t14));
    const float t26 = gid0 < data_f32_len ? data_f32_[gid0] : 0.0f;
    const float t27 = atan(tan(cos(sin(expm1(log1p(log2(log(exp2(exp(fabs(-t26)))))))))));
    const bool t28 = gid0 < flags_len ? (flags_[gid0] != 0) : false;
    const float t29 = fabs(t27);
    const float t30 = ((10.0f < t29) ? 10.0f : t29) * (-2.0f);
    const float t31 = fma(t30, 1.442695f, 12582912.0f);
    const float t32 = t31 - 12582912.0f;
    const float t33 = fma(t32, 0.00021219444f, fma(t32, -0.6933594f, t30));
    const float t34 = fma(fma(fma(fma(0.00019763438f, t33, 0.001393234f), t33, 0.008333544f), t33, 0.041666493f), t33, 0.16666666f);
    const float t35 = fma(fma(t34, t33, 0.5f), t33 * t33, t33);
    const float t36 = as_float((as_uint(t31) << 23) + 1065353216u);
    const uint t37 = (as_uint(fma(t36, t35, t36 - 1.0f) / fma(t36, t35, t36 + 1.0f)) & 2147483647u) | (as_uint(t27) & 2147483648u);
    const float t38 = min_f32(fmod((((trunc(rint(ceil(floor(sqrt(erf(as_float(t37))))))) + t26) - t26) * t26) / t26, t26), t26);
    if (gid0 < flags_len) flags_[gid0] = (t28 && (fma(pow(max_f32(t38, t26), t26), t26, t26) <= t26)) != t28;
    const double t39 = gid0 < data_f64_len ? data_f64_[gid0] : 0.0;
    const double t40 = atan(tan(cos(sin(expm1(log1p(log2(log(exp2(exp(fabs(-t39)))))))))));
    const double t41 = fabs(t40) * (-2.0);
    const double t42 = (t41 < (-38.0)) ? (-38.0) : t41;
    const double t43 = (710.0 < t42) ? 710.0 : t42;
    const double t44 = fma(t43, 1.4426950408889634, 6755399441055744.0);
    const double t45 = t44 - 6755399441055744.0;
    const double t46 = fma(t45, -1.9082149292705877e-10, fma(t45, -0.6931471803691238, t43));
    const double t47 = fma(fma(fma(2.089398671515446e-9, t46, 2.5108709955422767e-8), t46, 2.755732941860856e-7), t46, 2.7557245103109796e-6);
    const double t48 = fma(fma(fma(t47, t46, 2.480158727901335e-5), t46, 0.00019841269885373486), t46, 0.0013888888888893697);
    const double t49 = fma(fma(fma(t48, t46, 0.00833333333332179), t46, 0.041666666666666685), t46, 0.16666666666666677);
    const double t50 = fma(fma(t49, t46, 0.5), t46 * t46, t46);
    const double t51 = as_double((as_ulong(t44) << 52) + 4602678819172646912UL);
    const ulong t52 = as_ulong((t44 == 6755399441055744.0) ? t50 : (fma(t51, t50, t51 - 0.5) * 2.0)) & 9223372036854775807UL;
    const double t53 = as_double(t52 | (as_ulong(t41) & 9223372036854775808UL));
    const ulong t54 = (as_ulong(t53 / (t53 + 2.0)) & 9223372036854775807UL) | (as_ulong(t40) & 9223372036854775808UL);
    const double t55 = min_f64(fmod((((trunc(rint(ceil(floor(sqrt(erf(as_double(t54))))))) + t39) - t39) * t39) / t39, t39), t39);
    const double t56 = fma(pow(max_f64(t55, t39), t39), t39, t39);
    if (gid0 < data_f64_len) data_f64_[gid0] = t56 + (double)u8_from_f64(t56);
    const double t57 = gid0 < data_f64_len ? data_f64_[gid0] : 0.0;
    const double t58 = atan(tan(cos(sin(expm1(log1p(log2(log(exp2(exp(fabs(-t57)))))))))));
    const double t59 = fabs(t58) * (-2.0);
    const double t60 = (t59 < (-38.0)) ? (-38.0) : t59;
    const double t61 = (710.0 < t60) ? 710.0 : t60;
    const double t62 = fma(t61, 1.4426950408889634, 6755399441055744.0);
    const double t63 = t62 - 6755399441055744.0;
    const double t64 = fma(t63, -1.9082149292705877e-10, fma(t63, -0.6931471803691238, t61));
    const double t65 = fma(fma(fma(2.089398671515446e-9, t64, 2.5108709955422767e-8), t64, 2.755732941860856e-7), t64, 2.7557245103109796e-6);
    const double t66 = fma(fma(fma(t65, t64, 2.480158727901335e-5), t64, 0.00019841269885373486), t64, 0.0013888888888893697);
    const double t67 = fma(fma(fma(t66, t64, 0.00833333333332179), t64, 0.041666666666666685), t64, 0.16666666666666677);
    const double t68 = fma(fma(t67, t64, 0.5), t64 * t64, t64);
    const double t69 = as_double((as_ulong(t62) << 52) + 4602678819172646912UL);
    const ulong t70 = as_ulong((t62 == 6755399441055744.0) ? t68 : (fma(t69, t68, t69 - 0.5) * 2.0)) & 9223372036854775807UL;
    const double t71 = as_double(t70 | (as_ulong(t59) & 9223372036854775808UL));
    const ulong t72 = (as_ulong(t71 / (t71 + 2.0)) & 9223372036854775807UL) | (as_ulong(t58) & 9223372036854775808UL);
    const double t73 = min_f64(fmod((((trunc(rint(ceil(floor(sqrt(erf(as_double(t72))))))) + t57) - t57) * t57) / t57, t57), t57);
    if (gid0 < ints_len) ints_[gid0] = i64_from_f64(fma(pow(max_f64(t73, t57), t57), t57, t57));
    const bool t74 = gid0 < flags_len ? (flags_[gid0] != 0) : false;
    const double t75 = gid0 < data_f64_len ? data_f64_[gid0] : 0.0;
    const double t76 = atan(tan(cos(sin(expm1(log1p(log2(log(exp2(exp(fabs(-t75)))))))))));
    const double t77 = fabs(t76) * (-2.0);
    const double t78 = (t77 < (-38.0)) ? (-38.0) : t77;
    const double t79 = (710.0 < t78) ? 710.0 : t78;
    const double t80 = fma(t79, 1.4426950408889634, 6755399441055744.0);
    const double t81 = t80 - 6755399441055744.0;
    const double t82 = fma(t81, -1.9082149292705877e-10, fma(t81, -0.6931471803691238, t79));
    const double t83 = fma(fma(fma(2.089398671515446e-9, t82, 2.5108709955422767e-8), t82, 2.755732941860856e-7), t82, 2.7557245103109796e-6);
    const double t84 = fma(fma(fma(t83, t82, 2.480158727901335e-5), t82, 0.00019841269885373486), t82, 0.0013888888888893697);
    const double t85 = fma(fma(fma(t84, t82, 0.00833333333332179), t82, 0.041666666666666685), t82, 0.16666666666666677);
    const double t86 = fma(fma(t85, t82, 0.5), t82 * t82, t82);
    const double t87 = as_double((as_ulong(t80) << 52) + 4602678819172646912UL);
    const ulong t88 = as_ulong((t80 == 6755399441055744.0) ? t86 : (fma(t87, t86, t87 - 0.5) * 2.0)) & 9223372036854775807UL;
    const double t89 = as_double(t88 | (as_ulong(t77) & 9223372036854775808UL));
    const ulong t90 = (as_ulong(t89 / (t89 + 2.0)) & 9223372036854775807UL) | (as_ulong(t76) & 9223372036854775808UL);
    const double t91 = min_f64(fmod((((trunc(rint(ceil(floor(sqrt(erf(as_double(t90))))))) + t75) - t75) * t75) / t75, t75), t75);
    if (gid0 < flags_len) flags_[gid0] = (t74 && (fma(pow(max_f64(t91, t75), t75), t75, t75) <= t75)) != t74;
}
