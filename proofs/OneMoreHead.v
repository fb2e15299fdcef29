(** One more head: K^2 softmaxes at finite scores are not exact for every kernel, K^2 + 1 can be.

    book/spans.md, "One more head"; attnconv.theory.expressivity.expresses_convolution and
    attnconv.theory.encodings.RelativeBias (free scores). *)

From mathcomp Require Import all_ssreflect all_algebra reals sequences exp.
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

(** ** One more head

    With one head more than the kernel has shifts and [D_h >= D_out], finite scores are exact on
    images of one size, the pixels [S]: let each head but the last
    raise the score of its own shift by [c <> 0], and the last be uniform. Then for every kernel the layer
    has values with which it is the convolution, for every image and every interior query. *)
Theorem one_more_head (c : R) Din Dh Dout : c != 0 -> (Dout <= Dh)%N ->
  @expresses R n.+1 Din Dh Dout S Delta (probabilities S (fun h q k => raised_scores c h (k - q))).
Proof.
move=> c0 dims; pose w := expR c - 1; pose Z : R := (size S)%:R + w.
have w0 : w != 0 by rewrite subr_eq0 -expR0 (inj_eq (@expR_inj R)).
pose Phi : 'M[R]_(n, n.+1) := \matrix_(i, h)
  if (h < n)%N then (h == i :> nat)%:R * (Z / w) else - ((size S)%:R / w).
apply: (sufficient S_uniq (Phi := Phi)) => // q qS; apply/matrixP=> i t; rewrite !mxE.
have T0 : (size S)%:R != 0 :> R by rewrite pnatr_eq0 -lt0n (leq_ltn_trans _ (ltn_ord t)).
have Z0 : Z != 0.
  by rewrite gt_eqF // /Z /w addrCA ltr_paddr ?expR_gt0 // subr_ge0 ler1n lt0n -(pnatr_eq0 R).
have map h : head_maps S (probabilities S (fun h q k => raised_scores c h (k - q))) q h t =
    expR (raised_scores c h (S`_t - q)) / ((size S)%:R + (h < n)%:R * w).
  by rewrite mxE /probabilities /softmax raised_sum.
have last : ((@ord_max n : nat) < n)%N = false := ltnn n.
rewrite big_ord_recr /= map [Phi i ord_max]mxE {2}/raised_scores last mul0r addr0 expR0 div1r.
rewrite (bigD1 i) //= big1 ?addr0 => [|h hi]; last first.
  by rewrite mxE /= ltn_ord val_eqE (negPf hi) !mul0r.
rewrite map mxE /= ltn_ord eqxx !mul1r -/Z.
rewrite mulrC mulrA divfK // mulNr [_ / w / _]mulrAC divff // -mulrBl /raised_scores /= ltn_ord.
by rewrite subr_eq [_ + q]addrC; case: eqP; rewrite /= ?divff // expR0 subrr mul0r.
Qed.

(** ** K^2 heads

    Refuted: that as many heads as the kernel has shifts can be every convolution at finite scores,
    which are fixed before the kernel and do not depend on the image, on an image larger than the
    kernel (some interior query sees a pixel [k] off its kernel). *)
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
