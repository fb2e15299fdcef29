(** One more head: K^2 softmaxes at finite scores are not exact for every kernel, K^2 + 1 can be.

    book/spans.md, "One more head"; attnconv.theory.expressivity.expresses_convolution and
    attnconv.layers.encodings.RelativeBias (free scores). *)

From mathcomp Require Import all_ssreflect all_algebra fingroup perm reals sequences exp.
From AttnConv Require Import Attention Lemma1 Lemma3.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section OneMoreHead.
Variables (R : realType) (S : seq pixel) (Delta : seq shift).
Hypotheses (S_uniq : uniq S) (Delta_uniq : uniq Delta).
Let n := size Delta.

(** Head [h] raises the score of its own shift by [c]; the last head has no shift and is uniform. *)
Definition raised_scores (c : R) (h : 'I_n.+1) (delta : shift) : R :=
  if (h < n)%N && (delta == Delta`_h) then c else 0.

(** The sum of the exponentials does not depend on the query. *)
Lemma raised_sum c h q : interior S Delta q ->
  \sum_(k <- S) expR (raised_scores c h (k - q)) = (size S)%:R + (h < n)%:R * (expR c - 1).
Proof.
move=> qS.
have term k : expR (raised_scores c h (k - q)) =
    1 + (if (h < n)%N && (k == q + Delta`_h) then expR c - 1 else 0).
  rewrite /raised_scores subr_eq [_ + q]addrC; case: ifP => _; rewrite ?expR0 ?addr0 //.
  by rewrite addrCA subrr addr0.
under eq_bigr do rewrite term.
rewrite big_split big_const_seq count_predT iter_addr_0 /=; congr (_ + _).
have [hn|_] := ltnP h n; last by rewrite mul0r big1.
by rewrite -big_mkcond /= -big_filter filter_pred1_uniq ?qS ?mem_nth // big_seq1 mul1r.
Qed.

(** These heads can be mixed to one-hot maps, at every interior query alike. *)
Definition raised_phi (c : R) : 'M[R]_(n, n.+1) := \matrix_(i, h)
  let w := expR c - 1 in
  if (h < n)%N then (h == i :> nat)%:R * (((size S)%:R + w) / w) else - ((size S)%:R / w).

Lemma raised_mix c q : c != 0 -> interior S Delta q -> one_hot_maps R S Delta q =
  raised_phi c *m head_maps S (probabilities S (fun h q k => raised_scores c h (k - q))) q.
Proof.
move=> c0 qS; pose w := expR c - 1; pose Z : R := (size S)%:R + w.
have w0 : w != 0 by rewrite subr_eq0 -expR0 (inj_eq (@expR_inj R)).
apply/matrixP=> i t; rewrite !mxE.
have T0 : (size S)%:R != 0 :> R by rewrite pnatr_eq0 -lt0n (leq_ltn_trans _ (ltn_ord t)).
have Z0 : Z != 0.
  by rewrite gt_eqF // /Z /w addrCA ltr_paddr ?expR_gt0 // subr_ge0 ler1n lt0n -(pnatr_eq0 R).
have map h : head_maps S (probabilities S (fun h q k => raised_scores c h (k - q))) q h t =
    expR (raised_scores c h (S`_t - q)) / ((size S)%:R + (h < n)%:R * w).
  by rewrite mxE /probabilities /softmax raised_sum.
have last : ((@ord_max n : nat) < n)%N = false := ltnn n.
rewrite big_ord_recr /= map [raised_phi c i ord_max]mxE {2}/raised_scores last mul0r addr0 expR0.
rewrite div1r (bigD1 i) //= big1 ?addr0 => [|h hi]; last first.
  by rewrite mxE /= ltn_ord val_eqE (negPf hi) !mul0r.
rewrite map mxE /= ltn_ord eqxx !mul1r -/w -/Z.
rewrite mulrC mulrA divfK // mulNr [_ / w / _]mulrAC divff // -mulrBl /raised_scores /= ltn_ord.
by rewrite subr_eq [_ + q]addrC; case: eqP; rewrite /= ?divff // expR0 subrr mul0r.
Qed.

(** ** One more head

    With one head more than the kernel has shifts and [D_h >= D_out], finite scores are exact on
    images of one size, the pixels [S]: let each head but the last raise the score of its own
    shift by [c <> 0], and the last be uniform. Then for every kernel the layer has values with
    which it is the convolution, for every image and every interior query. *)
Theorem one_more_head (c : R) Din Dh Dout : c != 0 -> (Dout <= Dh)%N ->
  @expresses R n.+1 Din Dh Dout S Delta (probabilities S (fun h q k => raised_scores c h (k - q))).
Proof. by move=> c0 dims; apply: sufficient => // q qS; exact: raised_mix. Qed.

(** The same heads, in another order at some queries. *)
Definition reordered (c : R) (p : pixel -> {perm 'I_n.+1}) (h : 'I_n.+1) (q k : pixel) : R :=
  raised_scores c (p q h) (k - q).

(** What mixes them to one-hot maps is known where a pixel [k] off the kernel is seen. *)
Lemma reordered_mix c p (Phi : 'M_(n, n.+1)) q k i (j : 'I_n) : interior S Delta q ->
  k \in S -> k - q \notin Delta ->
  one_hot_maps R S Delta q = Phi *m head_maps S (probabilities S (reordered c p)) q ->
  Phi i ((p q)^-1%g (widen_ord (leqnSn n) j)) * ((expR c - 1) / ((size S)%:R + (expR c - 1))) =
  (j == i)%:R.
Proof.
move=> qS kS off mix; pose w := expR c - 1.
pose share (h : 'I_n.+1) : R := (size S)%:R + (h < n)%:R * w.
have at_pixel k' : k' \in S -> (k' == q + Delta`_i)%:R =
    \sum_h Phi i h * (expR (raised_scores c (p q h) (k' - q)) / share (p q h)).
  move=> k'S; have tS : (index k' S < size S)%N by rewrite index_mem.
  have := congr1 (fun M : 'M_(_, _) => M i (Ordinal tS)) mix.
  rewrite !mxE /= nth_index // => ->; apply: eq_bigr => h _.
  by rewrite mxE /= nth_index // /probabilities /softmax /reordered raised_sum.
have zero : \sum_h Phi i h / share (p q h) = 0.
  have := at_pixel k kS; rewrite (_ : (k == _) = false) => [sum0|]; last first.
    by apply: contraNF off => /eqP->; rewrite addrC addKr mem_nth.
  rewrite -[RHS]/(false%:R) sum0; apply: eq_bigr => h _.
  rewrite /raised_scores; case: ifP => [/andP[hn /eqP kq]|_].
    by rewrite kq mem_nth in off.
  by rewrite expR0 div1r.
have := at_pixel (q + Delta`_j) (qS _ (mem_nth _ (ltn_ord j))).
rewrite (inj_eq (addrI _)) nth_uniq // val_eqE => ->.
set j' := widen_ord _ j.
have term h : Phi i h * (expR (raised_scores c (p q h) (q + Delta`_j - q)) / share (p q h)) =
    (h == (p q)^-1%g j')%:R * (Phi i h * (w / share (p q h))) + Phi i h / share (p q h).
  rewrite [q + _]addrC addrK /raised_scores -(inj_eq (@perm_inj _ (p q))) permKV.
  have -> : (p q h == j') = (p q h < n)%N && (Delta`_j == Delta`_(p q h)).
    rewrite -val_eqE /=; case: ltnP => [hn|nh]; first by rewrite nth_uniq // eq_sym.
    by apply/negbTE; rewrite neq_ltn (leq_trans (ltn_ord j) nh) orbT.
  case: (_ && _); last by rewrite expR0 mul0r add0r div1r.
  by rewrite mul1r -mulrDr -[X in _ * (_ + X)]mul1r -mulrDl /w subrK.
under eq_bigr do rewrite term.
rewrite big_split /= zero addr0.
rewrite (bigD1 ((p q)^-1%g j')) //= eqxx mul1r big1 ?addr0 => [|h /negPf->]; last by rewrite mul0r.
by rewrite permKV /share /= ltn_ord mul1r.
Qed.

(** ** K^2 heads

    Refuted: on an image larger than the kernel (some interior query sees a pixel [k] off its
    kernel), as many heads as the kernel has shifts can be every convolution at finite scores that
    are fixed before the kernel and do not depend on the image. *)
Theorem K2_heads_refuted (A : 'I_n -> pixel -> pixel -> R) Din Dh Dout q k :
  (0 < n)%N -> interior S Delta q -> k \in S -> k - q \notin Delta ->
  ~ @expresses R n Din.+1 Dh Dout.+1 S Delta (probabilities S A).
Proof.
move=> n0 qS kS off /(necessary S_uniq Delta_uniq)[Phi /(_ q qS) mix].
pose a := head_maps S (probabilities S A) q; pose E := one_hot_maps R S Delta q.
have /mulmx1C inv : Phi *m (a *m E^T) = 1%:M.
  by rewrite mulmxA -mix; apply: one_hot_maps_free.
have a_E : a = (a *m E^T) *m E by rewrite {2}/E mix mulmxA inv mul1mx.
have tS : (index k S < size S)%N by rewrite index_mem.
have /eqP := congr1 (fun M : 'M_(_, _) => M (Ordinal n0) (Ordinal tS)) a_E.
rewrite mxE [X in _ == X]mxE big1 => [|i _]; first by rewrite gt_eqF // softmax_gt0 // mem_nth.
rewrite [E i _]mxE /= nth_index // (_ : (k == _) = false) ?mulr0 //.
by apply: contraNF off => /eqP->; rewrite addrC addKr mem_nth.
Qed.
End OneMoreHead.

(** Refuted: Lemma 3 as printed, with a matrix [Phi] for each query, at finite scores: ten heads
    that do not depend on the image can span the one-hot maps of [3 x 3] kernels at every interior
    query of [3 x 4] images and yet not express every convolution. (Two heads swap their shifts at
    one query.) *)
Theorem lemma_3_printed_softmax_refuted (R : realType) Din Dh Dout :
  let S := grid 3 4 in let Delta := kernel_shifts 3 3 in
  ~ (forall A : 'I_10 -> pixel -> pixel -> R,
     (forall q, interior S Delta q ->
        exists Phi, one_hot_maps R S Delta q = Phi *m head_maps S (probabilities S A) q) ->
     @expresses R 10 Din.+1 Dh Dout.+1 S Delta (probabilities S A)).
Proof.
move=> S Delta printed; pose i : 'I_(size Delta) := inord 0; pose j : 'I_(size Delta) := inord 1.
have ij : j == i = false by rewrite -val_eqE /= !inordK.
have S_uniq : uniq S := uniq_rectangle _ _ _; have Delta_uniq : uniq Delta by vm_compute.
pose wide := widen_ord (leqnSn (size Delta)).
pose p (q : pixel) : {perm 'I_(size Delta).+1} :=
  if q == (1, 2) then tperm (wide i) (wide j) else 1%g.
have span q : interior S Delta q -> exists Phi, one_hot_maps R S Delta q =
    Phi *m head_maps S (probabilities S (reordered (1 : R) p)) q.
  move=> qS; exists (raised_phi S Delta (1 : R) *m perm_mx (p q)^-1%g).
  have -> : head_maps S (probabilities S (reordered (1 : R) p)) q = perm_mx (p q) *m
      head_maps S (probabilities S (fun h q k => raised_scores (1 : R) h (k - q))) q.
    by rewrite -row_permE; apply/matrixP=> h t; rewrite !mxE.
  rewrite mulmxA -(mulmxA (raised_phi _ _ _)) -perm_mxM mulVg perm_mx1 mulmx1.
  by apply: raised_mix; rewrite ?oner_neq0.
have [Phi mix] := necessary S_uniq Delta_uniq (printed (reordered (1 : R) p) span).
have inside q : all (fun delta => q + delta \in S) Delta -> interior S Delta q by move/allP.
have q0S : interior S Delta (1, 1) by apply: inside; vm_compute.
have q1S : interior S Delta (1, 2) by apply: inside; vm_compute.
pose read := @reordered_mix R S Delta S_uniq Delta_uniq 1 p Phi.
have := read (1, 1) (0, 3) i i q0S isT isT (mix _ q0S).
have := read (1, 2) (0, 0) i j q1S isT isT (mix _ q1S).
rewrite /p /= invg1 perm1 tpermV tpermR => ->; rewrite ij eqxx => /eqP.
by rewrite eq_sym oner_eq0.
Qed.
