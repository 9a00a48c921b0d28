/* fuseblock from C and from languages that call C: plans by handle. A program in C++ uses fuseblock/plan.h.
 *
 *   FuseblockPlan* plan;
 *   if (fuseblock_plan_make("group_norm(4) | silu", "f32[2,8,16,16]", NULL, 0, NULL, NULL, &plan) != kFuseblockOk)
 *     fputs(fuseblock_last_error(), stderr);
 *   ... fuseblock_plan_run(plan, inputs, 3, outputs, 1, workspace, fuseblock_plan_workspace_bytes(plan));
 *   fuseblock_plan_free(plan);
 *
 * What holds:
 *  - Every function that can fail gives a FuseblockStatus. Where it is not kFuseblockOk no handle was made or
 *    changed, and fuseblock_last_error() says why. No C++ exception leaves a function.
 *  - The only state besides the handles is that message, one a thread. A plan never changes: any number of
 *    threads may use it at once, each with a workspace and outputs of its own.
 *  - Text and arrays that a function gives belong to the plan and live as long as it does.
 *  - Structs begin with `struct_size` where they may grow: set it to sizeof the struct. FuseblockTensor and
 *    FuseblockNamedType, which stand in arrays, stay as they are. Functions and enumerators are added, never changed.
 */
#pragma once

/* NOLINTBEGIN(modernize-*): this header is C. */

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define FUSEBLOCK_API __attribute__((visibility("default")))
#else
#define FUSEBLOCK_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when something is added below. */
#define FUSEBLOCK_C_API_VERSION 5

typedef int32_t FuseblockStatus;
enum {
  kFuseblockOk = 0,
  kFuseblockUserError = 1,     /* the caller's mistake */
  kFuseblockNotSupported = 2,  /* a sensible request that this build or this engine cannot serve */
  kFuseblockInternalError = 3, /* a broken promise inside fuseblock */
  kFuseblockMemoryError = 4    /* memory that could not be had */
};

typedef int32_t FuseblockDType;
enum { kFuseblockF64 = 0, kFuseblockF32 = 1, kFuseblockBF16 = 2, kFuseblockF16 = 3 };

typedef int32_t FuseblockReuse;
enum {
  kFuseblockReuseByCost = 0,   /* whichever the cost model finds cheaper */
  kFuseblockReuseStore = 1,    /* a convolution's result that is needed twice is written and read again */
  kFuseblockReuseRecompute = 2 /* it is computed again */
};

/* Kernels with a short text on a GPU, where there are some. */
typedef int32_t FuseblockPlain;
enum {
  kFuseblockPlainByCost = 0, /* where they were measured to take less time */
  kFuseblockPlainAlways = 1, /* for reading and for export */
  kFuseblockPlainNever = 2
};

/* What convolutions of f32 tensors are computed in on a GPU with tensor cores. */
typedef int32_t FuseblockPrecision;
enum {
  kFuseblockPrecisionStrict = 0, /* with the error of f32 arithmetic */
  kFuseblockPrecisionTf32 = 1    /* of operands rounded to tf32 */
};

/* A block made ready for one input type on one device. */
typedef struct FuseblockPlan FuseblockPlan;

/* The type of an extra input or a parameter, such as {"scale", "f32[2,64,1,1]"}. */
typedef struct FuseblockNamedType {
  const char* name;
  const char* type;
} FuseblockNamedType;

typedef struct FuseblockPlanOptions {
  size_t struct_size;
  int32_t threads; /* 0: as many as the machine has cores */
  FuseblockReuse reuse;
  int32_t unfused; /* not 0: one operation after the other, each result written to memory; for comparison */
  FuseblockPrecision precision;
  FuseblockPlain plain;
} FuseblockPlanOptions;

/* Elements at `data`, `strides[i]` elements apart along axis i; both arrays have `rank` entries. Inputs are only
 * read. */
typedef struct FuseblockTensor {
  void* data;
  FuseblockDType dtype;
  int32_t rank;
  const int64_t* extents;
  const int64_t* strides;
} FuseblockTensor;

/* What a plan expects of a tensor. `strides` are those of a dense tensor in the type's layout; others will do. */
typedef struct FuseblockTensorInfo {
  size_t struct_size;
  const char* name;
  const char* type; /* as the notation writes it: "f32[2,8,16,16]:cl" */
  FuseblockDType dtype;
  int32_t rank;
  const int64_t* extents;
  const int64_t* strides;
} FuseblockTensorInfo;

/* FUSEBLOCK_C_API_VERSION of the library, and its version as text. */
FUSEBLOCK_API int32_t fuseblock_c_api_version(void);
FUSEBLOCK_API const char* fuseblock_version(void);

/* Why the last function of this thread that failed did; empty before. It lives until the next one fails. */
FUSEBLOCK_API const char* fuseblock_last_error(void);

/* Where the run-time compiler of GPU kernels is looked for, beside other places (docs/environment.md): a folder of Python
 * packages that may hold NVIDIA's wheels. No effect once a compiler was found. */
FUSEBLOCK_API FuseblockStatus fuseblock_set_compiler_folder(const char* folder);

/* Makes a plan.
 *   notation    the block, as text (docs/notation.md) or, where it begins with `{`, as JSON
 *   input_type  the type of x, such as "bf16[2,320,64,64]:cl"
 *   others      types of extra inputs and parameters; those left out follow from the block
 *   device      the name of an engine ("cpu", "reference"); NULL takes the best one
 *   options     NULL takes the defaults: all zero
 *   plan        the handle, to be given back by fuseblock_plan_free */
FUSEBLOCK_API FuseblockStatus fuseblock_plan_make(const char* notation, const char* input_type,
                                                  const FuseblockNamedType* others, size_t other_count,
                                                  const char* device, const FuseblockPlanOptions* options,
                                                  FuseblockPlan** plan);
/* The plan of the gradients of the arguments named by `wanted`; none named means all that have one. Its inputs are
 * those of the plan that it needs and `d_` + name of each output; its outputs are `d_` + name of what is wanted. */
FUSEBLOCK_API FuseblockStatus fuseblock_plan_backward(const FuseblockPlan* plan, const char* const* wanted,
                                                      size_t wanted_count, FuseblockPlan** backward);
/* The same block as two plans that belong together: `forward` may have outputs behind those of `plan`, and
 * `backward` takes these as inputs, by the same names, beside what fuseblock_plan_backward's plan takes. */
FUSEBLOCK_API FuseblockStatus fuseblock_plan_for_training(const FuseblockPlan* plan,
                                                          const char* const* wanted, size_t wanted_count,
                                                          FuseblockPlan** forward, FuseblockPlan** backward);
/* Gives a handle back; NULL is allowed. */
FUSEBLOCK_API void fuseblock_plan_free(FuseblockPlan* plan);

/* The tensors of a plan, in the order in which fuseblock_plan_run takes them: x, extra inputs, parameters. */
FUSEBLOCK_API size_t fuseblock_plan_input_count(const FuseblockPlan* plan);
FUSEBLOCK_API size_t fuseblock_plan_output_count(const FuseblockPlan* plan);
FUSEBLOCK_API FuseblockStatus fuseblock_plan_input(const FuseblockPlan* plan, size_t index,
                                                   FuseblockTensorInfo* info);
FUSEBLOCK_API FuseblockStatus fuseblock_plan_output(const FuseblockPlan* plan, size_t index,
                                                    FuseblockTensorInfo* info);

/* The memory that a run needs besides its tensors, aligned to 64 bytes. */
FUSEBLOCK_API size_t fuseblock_plan_workspace_bytes(const FuseblockPlan* plan);

/* Asks the system for large pages for memory that was just allocated, such as that of an output: its first touch costs
 * less then (advise_fresh_memory in fuseblock/fresh_memory.h). It cannot fail. Since version 5. */
FUSEBLOCK_API void fuseblock_advise_fresh_memory(void* data, size_t bytes);

/* Computes the outputs. What the workspace holds does not matter before and means nothing after. Outputs must not
 * overlap inputs or each other. A tensor that is not what the plan was made for, or an output that begins where another
 * tensor does, is a kFuseblockUserError. */
FUSEBLOCK_API FuseblockStatus fuseblock_plan_run(const FuseblockPlan* plan, const FuseblockTensor* inputs,
                                                 size_t input_count, const FuseblockTensor* outputs,
                                                 size_t output_count, void* workspace,
                                                 size_t workspace_bytes);

/* The same on a GPU: tensors and workspace lie in its memory, and the launches go into `stream` (a CUstream; NULL is the
 * default one) without waiting for them. Other engines take no notice of the stream. */
FUSEBLOCK_API FuseblockStatus fuseblock_plan_run_on(const FuseblockPlan* plan, const FuseblockTensor* inputs,
                                                    size_t input_count, const FuseblockTensor* outputs,
                                                    size_t output_count, void* workspace,
                                                    size_t workspace_bytes, void* stream);

/* What runs and why, for a person and as a JSON object. */
FUSEBLOCK_API FuseblockStatus fuseblock_plan_explain(const FuseblockPlan* plan, const char** text);
FUSEBLOCK_API FuseblockStatus fuseblock_plan_explain_json(const FuseblockPlan* plan, const char** text);

/* The launches of a plan for a GPU, as a JSON object, with the constants of `like`, the plan of the same block for other
 * extents or NULL (Plan::launches_json in fuseblock/plan.h). It lives until the next call with this plan. Since version 3. */
FUSEBLOCK_API FuseblockStatus fuseblock_plan_launches_json(FuseblockPlan* plan, const FuseblockPlan* like,
                                                           const char** text);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-*) */
