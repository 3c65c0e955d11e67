// The truth and the budgets of a backward pass, and what may have gone wrong in one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gdnctl/oracle/gdn_adjoint.h"
#include "gdnctl/oracle/gdn_compare.h"
#include "oracle/compare/groups.h"
#include "oracle/compare/localise.h"

namespace gdnctl::oracle {

// One gradient that a dump may hold.
struct GradientTruth {
    std::string canonical;     // "dq"
    std::string_view axes;     // "b,t,h,k"
    Shape shape;               // as files have it
    std::vector<double> want;  // canonical axes
    Groups groups;
    TensorBudget budget;
    DType input = DType::f32;  // of what it is the gradient of, as stored
};

struct GdnBackward {
    GdnCotangents cotangents;  // as the truth used them
    GdnGradients gradients;
    std::vector<GradientTruth> truths;
    bool rounded_cotangent = false;  // d_out was rounded to the dtype of out

    const GradientTruth* find(std::string_view canonical) const;
};

std::vector<std::string_view> gradient_names();

// Whether every finite value is exact in `dtype`.
bool held_by(const std::vector<double>& values, DType dtype);

// A gradient of the dump beside its truth.
struct GradientEvidence {
    const GradientTruth* truth = nullptr;
    Evidence evidence;
    bool wrong = false;
};

// Where the gradients are wrong. The backward pass runs from the last token to the first, so the "first" wrong token is
// the latest one.
std::optional<FaultPlace> find_gradient_place(const GdnReference& reference, const std::vector<GradientEvidence>& all);
Diagnosis diagnose_backward(const GdnReference& reference, const std::vector<GradientEvidence>& all, int threads);

// Root mean square of got - want; values whose truth is not finite are left out.
double rms_difference(const std::vector<double>& got, const std::vector<double>& want);

}  // namespace gdnctl::oracle
