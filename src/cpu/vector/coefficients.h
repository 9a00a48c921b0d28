// The numbers behind functions-inl.h, for float and double.
//
// Each polynomial is the minimax fit of the function named beside it: the Remez exchange in 500-bit arithmetic,
// the error weighted so that the error of the final result is levelled, the coefficients then rounded to the
// type. The exponent of two after each is the largest error before that rounding. Lowest power first.
#pragma once

#include <array>

namespace fuseblock::cpu {

template <class T>
struct Coefficients;

template <>
struct Coefficients<float> {
  // ln 2 in two parts. The first has 15 bits, so that its product with any exponent is exact without FMA too.
  static constexpr float kLn2High = 0x1.62e4p-1F;
  static constexpr float kLn2Low = 1.42860677e-6F;

  // exp is 0 below and infinity above.
  static constexpr float kExpLowest = -104.5F;
  static constexpr float kExpHighest = 89.F;
  // expm1 is -1 below; x itself nearer to 0 than the second.
  static constexpr float kExpm1Lowest = -18.F;
  static constexpr float kExpm1Identity = 0x1p-26F;
  // tanh is a polynomial up to the first, 1 beyond the second.
  static constexpr float kTanhSmall = 0.625F;
  static constexpr float kTanhOne = 9.2F;
  // erf is a polynomial up to 1; 1 beyond this.
  static constexpr float kErfOne = 4.F;
  // sigmoid is 1 above.
  static constexpr float kSigmoidOne = 30.F;
  // 2^-k with k about half of the largest exponent: the powers beside it are normal numbers.
  static constexpr int kSigmoidScaleExponent = 75;
  static constexpr float kSigmoidScale = 0x1p-75F;

  // (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2; expm1(r) to 2^-26.1 of itself.
  static constexpr std::array<float, 5> kExp = {0.49999997F, 0.16666542F, 0.0416672081F, 0.00836684089F,
                                                0.00138825655F};
  // (log1p(f) - f + f^2 / 2) / f^3 for sqrt(1/2) <= 1 + f <= sqrt(2); 2^-27.4 of the logarithm.
  static constexpr std::array<float, 8> kLog1p = {0.333333313F, -0.250008225F, 0.200012267F, -0.166233569F,
                                                  0.142017514F, -0.13160184F,  0.127616212F, -0.0763454735F};
  // (tanh(x) - x) / x^3 in x^2 for |x| <= kTanhSmall; 2^-27.8.
  static constexpr std::array<float, 5> kTanh = {-0.333332807F, 0.133314416F, -0.0537397191F, 0.0206390936F,
                                                 -0.00570499245F};
  // erf(x) / x - 1 in x^2 for |x| <= 1; 2^-29.6.
  static constexpr std::array<float, 7> kErf = {0.128379166F,   -0.37612626F,   0.112835854F,
                                                -0.0268538129F, 0.00518832821F, -0.000801019836F,
                                                7.85387747e-05F};
  // log(erfc(t)) in t - 1 for 1 <= t <= kErfOne; erf(t) to 2^-29.9.
  static constexpr std::array<float, 7> kLogErfc = {-1.84960556F,   -2.6389668F,    -0.84311831F,
                                                    -0.0415006839F, 0.00989088416F, -0.00182615756F,
                                                    0.000185572586F};
};

template <>
struct Coefficients<double> {
  static constexpr double kLn2High = 0x1.62e42fefa3p-1;
  static constexpr double kLn2Low = 0x1.3de6af278ece6p-42;

  static constexpr double kExpLowest = -746.;
  static constexpr double kExpHighest = 710.;
  static constexpr double kExpm1Lowest = -38.;
  static constexpr double kExpm1Identity = 0x1p-55;
  static constexpr double kTanhSmall = 0.625;
  static constexpr double kTanhOne = 20.;
  static constexpr double kErfOne = 6.;
  static constexpr double kSigmoidOne = 40.;
  static constexpr int kSigmoidScaleExponent = 537;
  static constexpr double kSigmoidScale = 0x1p-537;

  // As above; 2^-61.6.
  static constexpr std::array<double, 11> kExp = {0.5,
                                                  0.16666666666666677,
                                                  0.041666666666666505,
                                                  0.0083333333333212526,
                                                  0.0013888888888964842,
                                                  0.0001984126988723901,
                                                  2.4801587169370412e-05,
                                                  2.7557242947593663e-06,
                                                  2.7557403834253325e-07,
                                                  2.5109521534610258e-08,
                                                  2.0875431946567228e-09};
  // (2 atanh(s) - 2 s) / s^3 in s^2 for s = f / (2 + f), the same range of f; 2^-59.4. A polynomial in f itself
  // would need some twenty coefficients here.
  static constexpr std::array<double, 7> kLog1p = {
      0.66666666666667396, 0.39999999999377944, 0.28571428751308231, 0.22222197586938922,
      0.18183619005004178, 0.15312569519427091, 0.14811543358384274};
  // 2^-61.2.
  static constexpr std::array<double, 12> kTanh = {
      -0.33333333333333315,    0.13333333333329742,    -0.053968253966058762,   0.021869488468712804,
      -0.0088632343125538155,  0.0035921139997525681,  -0.00145572594786165,    0.00058945179995573203,
      -0.00023701173684699729, 9.1558428460645577e-05, -3.0187240732636964e-05, 6.0424781915592844e-06};
  // 2^-62.7.
  static constexpr std::array<double, 13> kErf = {
      0.12837916709551259,    -0.37612638903183748,    0.11283791670954857,    -0.026866170645072875,
      0.0052239776247807162,  -0.00085483269787355455, 0.00012055331036704848, -1.4925593503022627e-05,
      1.6460972764527015e-06, -1.6350024742759096e-07, 1.4657877016960177e-08, -1.1365656288415866e-09,
      5.9452471154237219e-11};
  // 2^-57.1.
  static constexpr std::array<double, 18> kLogErfc = {
      -1.8496055099332482,     -2.6389675142347757,     -0.84310725635941253,    -0.041561098025082607,
      0.010033825179154405,    -0.0019779012160793196,  0.00023731643620294868,  2.6296322288257792e-05,
      -2.7198962860536788e-05, 9.6713628122056592e-06,  -2.1319254765702361e-06, 2.0480153558422842e-07,
      5.8016996849564009e-08,  -3.3393253125143974e-08, 8.5192817157539878e-09,  -1.3191883670426931e-09,
      1.193343177986711e-10,   -4.8653911098078066e-12};
};

}  // namespace fuseblock::cpu
