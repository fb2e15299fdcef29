(** Floating point: from [hard_alpha] on the computed softmax is one-hot, and the layer is the
    convolution, summed in the order of the heads.

    attnconv.theory.theorem1.hard_alpha; book/theorem.md; notebooks/04-lemma-2.ipynb.  The arithmetic is
    abstract: a set of numbers, and a rounding of every real number to a nearest one of them (ties
    in any way).  Additions, multiplications and divisions are correctly rounded, in any order; of
    the exponential we assume less, see [float_exp].  Not covered: overflow, infinities and NaN;
    rounding in another way; that a program sums in the order of the lists. *)

From Coq Require Import NArith.
From mathcomp Require Import all_ssreflect all_algebra reals sequences exp.
From AttnConv Require Import Attention Lemma1 Lemma2.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

(** Numbers with 0 and 1, the smallest positive one [tiny], and rounding to a nearest number. *)
Record float_format (R : realType) := FloatFormat {
  float : R -> Prop;
  round : R -> R;
  tiny : R;
  float_0 : float 0;
  float_1 : float 1;
  float_opp : forall x, float x -> float (- x);
  float_round : forall x, float (round x);
  round_nearest : forall x y, float y -> `|round x - x| <= `|y - x|;
  tiny_gt0 : 0 < tiny;
  tiny_least : forall x, float x -> 0 < x -> tiny <= x
}.

Section Float.
Variables (R : realType) (F : float_format R).
Notation float := (float F).
Notation round := (round F).
Notation tiny := (tiny F).

(** What the operations compute. *)
Definition fadd (x y : R) : R := round (x + y).
Definition fmul (x y : R) : R := round (x * y).
Definition fdiv (x y : R) : R := round (x / y).
Definition fsum (I : Type) (s : seq I) (x : I -> R) : R := foldl (fun sum i => fadd sum (x i)) 0 s.

(** A computed exponential: of 0 it is 1, and below half the smallest positive number it is 0.  A
    correctly rounded one is of this kind ([float_exp_round]), and so is one that flushes subnormal
    numbers to 0; of all other values nothing is assumed. *)
Definition float_exp (fexp : R -> R) : Prop :=
  fexp 0 = 1 /\ forall x, float x -> expR x < tiny / 2%:R -> fexp x = 0.

(** The scores of a head with a whole-numbered centre, from the distance [d] to it along both axes,
    which is exact; and the softmax, as libraries compute it: the largest score is subtracted, then
    exponentials, their sum in the order of the list, and a division. *)
Definition fscore (alpha : R) (d : shift) : R :=
  round (- fmul alpha (fadd (fmul d.1%:~R d.1%:~R) (fmul d.2%:~R d.2%:~R))).
Definition largest (S : seq pixel) (A : pixel -> R) : R :=
  foldr (fun k => Num.max (A k)) (A (head 0 S)) S.
Definition fsoftmax (fexp : R -> R) (S : seq pixel) (A : pixel -> R) (k : pixel) : R :=
  let e k := fexp (round (A k - largest S A)) in fdiv (e k) (fsum S e).

Lemma round_id x : float x -> round x = x.
Proof.
move=> xF; have := @round_nearest R F x x xF; rewrite subrr normr0.
by rewrite normr_le0 subr_eq0 => /eqP.
Qed.

Lemma round_0 : round 0 = 0. Proof. exact/round_id/float_0. Qed.
Lemma round_1 : round 1 = 1. Proof. exact/round_id/float_1. Qed.

(** Less than half the smallest number is rounded to 0. *)
Lemma round_tiny x : 0 <= x -> x < tiny / 2%:R -> round x = 0.
Proof.
move=> x0 small; have near := @round_nearest R F x 0 (float_0 F).
rewrite sub0r normrN (ger0_norm x0) in near.
have up : round x <= x + x by rewrite -ler_subl_addr (le_trans (ler_norm _)).
have down : 0 <= round x.
  have := le_trans (ler_norm (x - round x)) _ ; rewrite distrC => /(_ _ near).
  by rewrite ler_subl_addr ler_addl.
apply/eqP; rewrite eq_le down andbT leNgt; apply/negP => pos.
have := le_trans (tiny_least (float_round F x) pos) up.
by rewrite -mulr2n -mulr_natr leNgt -ltr_pdivl_mulr ?ltr0n // small.
Qed.

(** Rounding is monotonic. *)
Lemma round_le x y : x <= y -> round x <= round y.
Proof.
have [->|x_y] := eqVneq x y; first by rewrite lexx.
move=> xy; rewrite leNgt; apply/negP => yx.
have sqr (a b : R) : (`|a| <= `|b|) = (0 <= (b - a) * (b + a)).
  by rewrite -subr_sqr subr_ge0 -[in RHS]real_normK ?num_real // -[b ^+ 2]real_normK ?num_real //
    ler_sqr ?nnegrE.
have := @round_nearest R F x (round y) (float_round F y).
have := @round_nearest R F y (round x) (float_round F x).
move: (round x) (round y) yx => a b ba.
have diff (u w z : R) : u - z - (w - z) = u - w by rewrite opprB addrA subrK.
have add (u w z : R) : u - z + (w - z) = u + w - (z + z) by rewrite addrACA -opprD.
rewrite !sqr !diff !add pmulr_rge0 ?subr_gt0 // nmulr_rge0 ?subr_lt0 //.
rewrite subr_ge0 subr_le0 [b + a]addrC => y2 x2.
have := le_trans y2 x2; rewrite -!mulr2n ler_muln2r /= => yx.
by rewrite eq_le xy yx in x_y.
Qed.

Lemma float_exp_round : float_exp (fun x => round (expR x)).
Proof.
split=> [|x _ small]; first by rewrite expR0 round_1.
by rewrite round_tiny // ltW ?expR_gt0.
Qed.

(** Sums of zeros, but for one number. *)
Lemma fsum_zeros (I : eqType) (s : seq I) (x : I -> R) sum :
  float sum -> (forall i, i \in s -> x i = 0) -> foldl (fun t i => fadd t (x i)) sum s = sum.
Proof.
move=> sumF; elim: s => //= i s IH zero.
rewrite zero ?mem_head // /fadd addr0 round_id // IH // => j js.
by rewrite zero // inE js orbT.
Qed.

Lemma fsum_one (I : eqType) (s : seq I) (x : I -> R) c : uniq s -> c \in s -> float (x c) ->
  (forall i, i \in s -> i != c -> x i = 0) -> fsum s x = x c.
Proof.
move=> s_uniq /splitPr cs; case: cs s_uniq => s1 s2.
rewrite cat_uniq /= => /and3P[_ off /andP[c2 _]].
move=> xF zero; have c1 : c \notin s1 by apply: contra off => c1; rewrite c1.
rewrite /fsum foldl_cat /= (fsum_zeros (float_0 F)) => [|i i1]; last first.
  by apply: zero; rewrite ?mem_cat ?i1 //; apply: contraNneq c1 => <-.
rewrite {2}/fadd add0r (round_id xF) (fsum_zeros xF) // => i i2.
apply: zero; first by rewrite mem_cat inE i2 !orbT.
by apply: contraNneq c2 => <-.
Qed.

Section OneHot.
Variables (fexp : R -> R) (alpha : R).
Hypotheses (fexpF : float_exp fexp) (alphaF : float alpha) (hard : expR (- alpha) < tiny / 2%:R).

Lemma alpha_ge0 : 0 <= alpha.
Proof.
rewrite leNgt; apply/negP => neg; move: hard; apply/negP; rewrite -leNgt.
apply: (@le_trans _ _ 1); last by rewrite -expR0 ler_expR oppr_ge0 ltW.
rewrite ler_pdivr_mulr ?ltr0n // mul1r.
by rewrite (le_trans (tiny_least (float_1 F) ltr01)) // ler1n.
Qed.

Lemma fscore_0 : fscore alpha 0 = 0.
Proof. by rewrite /fscore /fadd /fmul /= !(mulr0, round_0, addr0, oppr0). Qed.

Lemma fscore_le d : d != 0 -> fscore alpha d <= - alpha.
Proof.
move=> d0; rewrite -[leRHS]round_id; last exact: float_opp.
apply: round_le; rewrite ler_opp2 -[leLHS]round_id //; apply: round_le.
rewrite ler_pemulr ?alpha_ge0 // -[leLHS]round_1; apply: round_le.
have sqr (z : int) : 0 <= fmul z%:~R z%:~R.
  by rewrite -[leLHS]round_0; apply: round_le; rewrite -expr2 sqr_ge0.
have one (z : int) : z != 0 -> 1 <= fmul z%:~R z%:~R.
  move=> z0; rewrite -[leLHS]round_1; apply: round_le.
  by rewrite -expr2 -rmorphX /= ler1z -gtz0_ge1 exprn_even_gt0.
have [d10|/one d1] := eqVneq d.1 0; last by rewrite -[leLHS]addr0 ler_add.
rewrite -[leLHS]add0r ler_add // one //; apply: contraNneq d0 => d20.
by rewrite [d]surjective_pairing d10 d20.
Qed.

Lemma largest_0 c S : c \in S -> largest S (fun k => fscore alpha (k - c)) = 0.
Proof.
move=> cS; set A := fun k => _.
have le0 k : A k <= 0.
  rewrite /A; have [->|/fscore_le/le_trans] := eqVneq (k - c) 0; first by rewrite fscore_0.
  by apply; rewrite oppr_le0 alpha_ge0.
have A_c : A c = 0 by rewrite /A subrr fscore_0.
apply/eqP; rewrite eq_le /largest; move: (head 0 S) => k0; apply/andP; split.
  by elim: S {cS} => //= k S IH; rewrite le_maxl le0.
elim: S cS => //= k S IH; rewrite inE le_maxr => /orP[/eqP<-|/IH->]; last by rewrite orbT.
by rewrite A_c lexx.
Qed.

(** ** The computed softmax is one-hot

    Let [e^-alpha] be below half the smallest positive number, [alpha] a number, and the centre [c]
    in the image.  Then the computed probabilities are exactly 1 at [c] and 0 elsewhere. *)
Theorem float_one_hot S c k : uniq S -> c \in S -> k \in S ->
  fsoftmax fexp S (fun k => fscore alpha (k - c)) k = (k == c)%:R.
Proof.
move=> S_uniq cS kS; rewrite /fsoftmax largest_0 //.
pose e k := fexp (round (fscore alpha (k - c) - 0)).
have e_hot k' : e k' = (k' == c)%:R.
  rewrite /e subr0 round_id; last exact: float_round.
  have [->|kc] := eqVneq k' c; first by rewrite subrr fscore_0 fexpF.1.
  apply: fexpF.2; first exact: float_round.
  by apply: le_lt_trans hard; rewrite ler_expR fscore_le // subr_eq0.
have -> : fsum S e = 1.
  rewrite (@fsum_one _ _ _ c) // => [||i _ /negPf ic]; rewrite ?e_hot ?eqxx ?ic //.
  exact: float_1.
rewrite -/(e k) e_hot /fdiv divr1.
by case: (k == c); rewrite ?round_1 ?round_0.
Qed.

(** ** The computed layer is the computed convolution

    Let [alpha] be as in [float_one_hot] (in [attnconv], [hard_alpha] or any larger number of the
    format) and the numbers of the image be numbers of the format. At an interior query the layer of
    Theorem 1, its values the identity, computed with correctly rounded operations, gives the same
    number as the convolution that adds the products [X_(q + f h),i W_(f h),i,o] in the same order,
    by heads and then by input channels, and then the bias. *)
Theorem float_layer_is_convolution N Din Dout S (f : 'I_N -> shift)
    (W : shift -> 'M[R]_(Din, Dout)) (b : 'rV[R]_Dout) (X : image R Din) q o :
  uniq S -> (forall h, q + f h \in S) -> (forall k i, k \in S -> float (X k 0 i)) ->
  let order := [seq (h, i) | h <- enum 'I_N, i <- enum 'I_Din] in
  let p h := fsoftmax fexp S (fun k => fscore alpha (k - (q + f h))) in
  let head h i := fsum S (fun k => fmul (p h k) (X k 0 i)) in
  fadd (fsum order (fun hi => fmul (head hi.1 hi.2) (W (f hi.1) hi.2 o))) (b 0 o) =
  fadd (fsum order (fun hi => fmul (X (q + f hi.1) 0 hi.2) (W (f hi.1) hi.2 o))) (b 0 o).
Proof.
move=> S_uniq fS XF order p head.
have head_E h i : head h i = X (q + f h) 0 i.
  rewrite /head (@fsum_one _ _ _ (q + f h)) // /fmul /p.
  - by rewrite float_one_hot // eqxx mul1r round_id //; apply: XF.
  - exact: float_round.
  - by move=> k kS /negPf kc; rewrite float_one_hot // kc mul0r round_0.
rewrite /fsum; congr (fadd _ _); elim: order (0 : R) => //= hi s IH sum.
by rewrite head_E IH.
Qed.
End OneHot.
End Float.

(** ** A format is any finite set of numbers

    Every finite list of numbers with 0 and 1, and with [-x] beside each [x], has such a rounding.
    Examples are the formats of IEEE 754 without infinities and NaNs. *)
Theorem finite_formats (R : realType) (s : seq R) (t : R) :
  0 \in s -> 1 \in s -> (forall x, x \in s -> - x \in s) ->
  0 < t -> (forall x, x \in s -> 0 < x -> t <= x) ->
  exists F : float_format R, (forall x, float F x <-> x \in s) /\ tiny F = t.
Proof.
move=> s0 s1 s_opp t0 least.
pose near x := foldr (fun y best => if `|y - x| <= `|best - x| then y else best) 0 s.
have near_in x : near x \in s.
  rewrite /near; have: {subset s <= s} by []; elim: {-2 4}s => //= y l IH sub.
  case: ifP => _; first by apply: sub; rewrite mem_head.
  by apply: IH => z zl; apply: sub; rewrite inE zl orbT.
have near_le x y : y \in s -> `|near x - x| <= `|y - x|.
  rewrite /near; elim: s {s0 s1 s_opp least near near_in} => //= z l IH; rewrite inE.
  case/orP=> [/eqP<-|/IH yl]; first by case: ifP => [//|/negbT]; rewrite -ltNge => /ltW.
  by case: ifP => [/le_trans le|//]; apply: le.
by exists (FloatFormat s0 s1 s_opp near_in near_le t0 least).
Qed.

(** A lower bound of [e], from the first eight terms of its series. *)
Lemma e_ge (R : realType) : (N.to_nat 13700)%:R <= (N.to_nat 5040)%:R * expR 1 :> R.
Proof.
have -> : N.to_nat 5040 = 7`! by vm_compute.
have nd : {homo series (exp_coeff (1 : R)) : n m / (n <= m)%N >-> n <= m}.
  by apply: nondecreasing_series => n _; apply: exp_coeff_ge0; apply: ler01.
have := nondecreasing_cvg_le nd (@is_cvg_series_exp_coeff R 1) 8.
rewrite -(ler_pmul2l (_ : 0 < (7`!)%:R)) ?ltr0n ?fact_gt0 //; apply: le_trans.
rewrite /series /= mulr_sumr (eq_big_nat _ _ (F2 := fun k => (7`! %/ k`!)%:R)) => [|k /andP[_ k8]].
  by rewrite -natr_sum !big_nat_recr //= big_geq // add0n ler_nat.
rewrite exp_coeffE expr1n mulr1 natf_div //.
by move: k8; do 8![case: k => [|k]; first by []].
Qed.

(** Powers, computed in binary. *)
Lemma pow_lt (p a : N) : N.ltb (N.mul (N.pow 2 p) (N.pow 5040 a)) (N.pow 13700 a) ->
  (2 ^ N.to_nat p * N.to_nat 5040 ^ N.to_nat a < N.to_nat 13700 ^ N.to_nat a)%N.
Proof.
have powE m n : PeanoNat.Nat.pow m n = (m ^ n)%N by elim: n => //= n ->; rewrite expnS.
move=> /N.ltb_lt; rewrite /N.lt N2Nat.inj_compare => /PeanoNat.Nat.compare_lt_iff/ssrnat.ltP.
by rewrite N2Nat.inj_mul !N2Nat.inj_pow !powE.
Qed.

Lemma expRN_lt (R : realType) (m n p a : nat) : (0 < n)%N -> m%:R <= n%:R * expR 1 :> R ->
  (2 ^ p * n ^ a < m ^ a)%N -> expR (- a%:R) < 2%:R ^- p :> R.
Proof.
move=> n0 e_m lt; rewrite expRN ltf_pinv ?posrE ?expR_gt0 ?exprn_gt0 ?ltr0n //.
have pos : 0 < n%:R ^+ a :> R by rewrite exprn_gt0 // ltr0n.
rewrite -(ltr_pmul2l pos) -[X in expR X]mulr1 expRMm -exprMn.
apply: (@lt_le_trans _ _ (m%:R ^+ a)).
  by rewrite -!natrX -natrM ltr_nat mulnC.
by rewrite ler_expn2r // nnegrE ?ler0n // mulr_ge0 ?ler0n // ltW // expR_gt0.
Qed.

Lemma hard_enough (R : realType) (p a : N) :
  N.ltb (N.mul (N.pow 2 p) (N.pow 5040 a)) (N.pow 13700 a) ->
  expR (- (N.to_nat a)%:R) < 2%:R ^- N.to_nat p :> R.
Proof. by move=> /pow_lt; apply: expRN_lt (e_ge R). Qed.

(** ** The numbers of [hard_alpha]

    The smallest positive numbers of float64, float32, bfloat16 and float16 are [2^-1074], [2^-149],
    [2^-133] and [2^-24]; [alpha = 746], 104, 93 and 18 are large enough for [float_one_hot]. *)
Theorem hard_alphas (R : realType) :
  [/\ expR (- 746%:R) < 2%:R ^- 1074 / 2%:R :> R, expR (- 104%:R) < 2%:R ^- 149 / 2%:R :> R,
      expR (- 93%:R) < 2%:R ^- 133 / 2%:R :> R & expR (- 18%:R) < 2%:R ^- 24 / 2%:R :> R].
Proof.
have half n : 2%:R ^- n / 2%:R = 2%:R ^- n.+1 :> R by rewrite exprSr invfM mulrC.
rewrite !half; split.
- by apply: (@hard_enough R 1075 746); vm_compute.
- by apply: (@hard_enough R 150 104); vm_compute.
- by apply: (@hard_enough R 134 93); vm_compute.
- by apply: (@hard_enough R 25 18); vm_compute.
Qed.
