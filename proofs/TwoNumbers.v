(** Two numbers place the attention, one does not.

    An erratum to Lemma 2 and Theorem 1, which ask [3 <= D_p]; book/errata.md.  Number all shifts
    in any way, without a number twice: [n delta].  The encoding [(n^2, n)] gives the scores
    [-alpha ((n delta - n Delta)^2 - (n Delta)^2)], which are largest at [Delta]. *)

From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import boolp classical_sets reals topology normedtype sequences exp.
From AttnConv Require Import Attention Lemma1 Lemma2 Theorem1.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory numFieldNormedType.Exports.
Local Open Scope classical_set_scope.
Local Open Scope ring_scope.

Section Probabilities.
Variables (R : realType) (S : seq pixel) (A : pixel -> R).
Hypothesis S_uniq : uniq S.

(** Two different pixels share at most 1. *)
Lemma softmax_pair c k : c \in S -> k \in S -> k != c -> softmax S A c + softmax S A k <= 1.
Proof.
move=> cS kS kc; rewrite -(softmax_sum A cS) (bigD1_seq c) //= ler_add2l.
rewrite (big_rem k) //= kc ler_addl big_seq_cond sumr_ge0 // => i /andP[/mem_rem iS _].
exact/ltW/softmax_gt0.
Qed.

Lemma softmax_other_le c k e : c \in S -> k \in S -> k != c ->
  1 - e <= softmax S A c -> softmax S A k <= e.
Proof.
move=> cS kS kc centre; have := softmax_pair cS kS kc.
rewrite -ler_subr_addl => /le_trans; apply.
by rewrite ler_subl_addr -ler_subl_addl.
Qed.

(** A pixel that another one's score reaches gets at most half. *)
Lemma softmax_half c k : c \in S -> k \in S -> k != c -> A c <= A k ->
  softmax S A c <= 2%:R^-1.
Proof.
move=> cS kS kc ck; have le : softmax S A c <= softmax S A k.
  by rewrite ler_wpmul2r ?ler_expR // invr_ge0 (ltW (sum_expR_gt0 _ cS)).
rewrite -div1r ler_pdivl_mulr ?ltr0n // mulr_natr mulr2n.
by apply: le_trans (softmax_pair cS kS kc); rewrite ler_add2l.
Qed.

(** ** Lemma 2 for any scores with a margin

    Where the centre's score is larger than all others by at least [alpha], however the scores come
    about (a learned encoding, say), the centre gets at least [1 - (T - 1) e^-alpha] of [T] pixels. *)
Theorem lemma_2_margin c alpha : c \in S -> 0 <= alpha ->
  (forall k, k \in S -> k != c -> A k + alpha <= A c) ->
  1 - (size S).-1%:R * expR (- alpha) <= softmax S A c.
Proof.
move=> cS alpha0 margin; rewrite ler_subl_addr -[leLHS](softmax_sum A cS).
rewrite (big_rem c) //= ler_add2l.
rewrite -(size_rem cS) mulr_natl -iter_addr_0 -count_predT -big_const_seq !big_seq.
apply: ler_sum => k; rewrite mem_rem_uniq // inE => /andP[kc kS].
apply: (@le_trans _ _ (expR (- alpha) * softmax S A c)).
  rewrite /softmax mulrA ler_wpmul2r ?invr_ge0 ?(ltW (sum_expR_gt0 _ cS)) // -expRD ler_expR.
  by rewrite addrC ler_subr_addr margin.
by rewrite ler_pimulr ?softmax_le1 // ltW // expR_gt0.
Qed.
End Probabilities.

Section TwoNumbers.
Variables (R : realType) (n : shift -> nat).
Hypothesis n_inj : injective n.

Definition column2 (x y : R) : 'cV_2 := \col_i [:: x; y]`_i.
Definition two_r Dp (delta : shift) : 'cV[R]_Dp :=
  pid_mx 2 *m column2 ((n delta)%:R ^+ 2) (n delta)%:R.
Definition two_v Dk (alpha : R) (Delta : shift) : 'cV[R]_Dk :=
  - alpha *: (pid_mx 2 *m column2 1 (- 2%:R * (n Delta)%:R)).

Lemma two_scores Din Dk Dp (u : 'cV_Dk) alpha Delta (X : image R Din) q k :
  (2 <= Dp)%N -> (Dp <= Dk)%N ->
  relative_scores 0 0 (pid_mx Dp : 'M_(Dk, Dp)) u (two_v Dk alpha Delta) (@two_r Dp) X q k =
  - (alpha * (`|(n (k - q)%R)%:Z - (n Delta)%:Z|%N ^ 2)%:R) + alpha * (n Delta)%:R ^+ 2.
Proof.
move=> Dp2 DpDk; rewrite /relative_scores !(trmx0, mulmx0, mul0mx, add0r).
rewrite /two_v /two_r linearZ /= trmx_mul tr_pid_mx -!scalemxAl mulmxA.
rewrite -!(mulmxA (column2 _ _)^T) !mul_pid_mx (minn_idPl Dp2).
rewrite (minn_idPr (leq_trans Dp2 DpDk)) minnn (minn_idPr Dp2) pid_mx_1 mul1mx.
rewrite !mxE !big_ord_recl big_ord0 !mxE /= addr0 mul1r.
rewrite -abszX natr_absz ger0_norm ?sqr_ge0 // rmorphX rmorphB /= -!pmulrn.
move: (n (k - q))%:R (n Delta)%:R => x y.
have -> : - (alpha * (x - y) ^+ 2) + alpha * y ^+ 2 = - alpha * ((x - y) ^+ 2 - y ^+ 2).
  by rewrite mulrBr !mulNr opprK.
rewrite sqrrB addrK.
by congr (_ * (_ + _)); rewrite !mulNr -mulrA mulr_natl mulrC.
Qed.

(** ** Lemma 2 with two numbers

    Let [n] give each shift a different number, and let [2 <= D_p <= D_k]. With the encoding
    [(n^2, n)] the pixel [q + Delta] gets at least [1 - 2 e^-alpha], on images of every size. *)
Theorem lemma_2_two_numbers Din Dk Dp (u : 'cV_Dk) (alpha : R) Delta (X : image R Din) S q :
  uniq S -> (2 <= Dp)%N -> (Dp <= Dk)%N -> 0 <= alpha -> q + Delta \in S ->
  1 - 2%:R * expR (- alpha) <=
  softmax S (relative_scores 0 0 (pid_mx Dp) u (two_v Dk alpha Delta) (@two_r Dp) X q) (q + Delta).
Proof.
move=> S_uniq Dp2 DpDk alpha0 cS; pose d k := (`|(n (k - q)%R)%:Z - (n Delta)%:Z|%N ^ 2)%N.
pose x := expR (- alpha).
have weight k : expR (- (alpha * (d k)%:R)) = x ^+ d k by rewrite -expRMm mulrN mulrC.
have -> : softmax S (relative_scores 0 0 (pid_mx Dp) u (two_v Dk alpha Delta) (@two_r Dp) X q)
    (q + Delta) = (\sum_(k <- S) x ^+ d k)^-1.
  rewrite -(softmax_shift _ _ (- (alpha * (n Delta)%:R ^+ 2))) /softmax.
  under eq_bigr do rewrite two_scores // addrK weight.
  by rewrite two_scores // addrK weight /d [q + _]addrC addrK subrr expr0 div1r.
have /andP[x0 x1] : 0 <= x <= 1 := expRN_itv alpha0.
set t := \sum_(k <- S) _; have t1 : 1 <= t.
  rewrite /t (big_rem (q + Delta)) //= {1}/d [q + _]addrC addrK subrr expr0 ler_addl.
  by rewrite sumr_ge0 // => *; apply: exprn_ge0.
pose m := (\max_(k <- S) n (k - q)%R).+1.
have n_m k : k \in S -> (n (k - q)%R < m)%N by move=> kS; rewrite ltnS leq_bigmax_seq.
have tle : (1 - x) * t <= 1 + x.
  have Dm : (n Delta < m)%N by have := n_m _ cS; rewrite [q + _]addrC addrK.
  apply: le_trans (axis_le (m := n Delta) (n := m) _ Dm); last by rewrite x0.
  rewrite ler_wpmul2l ?subr_ge0 //.
  rewrite /t -(big_map (fun k => n (k - q)) xpredT
    (fun i => x ^+ (`|i%:Z - (n Delta)%:Z|%N ^ 2))).
  apply: sum_subset => [||_ /mapP[k kS ->]|i]; last exact: exprn_ge0.
  - by rewrite map_inj_uniq // => k k' /n_inj /addIr.
  - exact: iota_uniq.
  - by rewrite mem_index_iota n_m.
have t0 : 0 < t by apply: lt_le_trans t1.
rewrite -(ler_pmul2r t0) mulVf ?gt_eqF //.
have -> : (1 - 2%:R * x) * t = (1 - x) * t - x * t.
  by rewrite !mulrBl mul1r -addrA -opprD -mulr2n mulr_natl mulrnAl.
by rewrite ler_subl_addr (le_trans tle) // ler_add2l ler_pemulr.
Qed.
End TwoNumbers.

(** Some numbering of all shifts. *)
Definition number (delta : shift) : nat := pickle delta.

Lemma number_inj : injective number. Proof. exact: pcan_inj (@pickleK _). Qed.

(** ** Lemma 2 as a limit, with two numbers

    [lemma_2_limit] with [2 <= D_p] instead of [3 <= D_p]. *)
Theorem lemma_2_limit_two_numbers (R : realType) Din Dk Dp : (2 <= Dp)%N -> (Dp <= Dk)%N ->
  exists (r : shift -> 'cV[R]_Dp) (Wqry Wkey : 'M_(Dk, Din)) (Wkeyhat : 'M_(Dk, Dp)) (u : 'cV_Dk),
  forall Delta, exists v : R -> 'cV_Dk,
  forall H Wd (X : image R Din) q k, q + Delta \in grid H Wd -> k \in grid H Wd ->
  (fun alpha => softmax (grid H Wd) (relative_scores Wqry Wkey Wkeyhat u (v alpha) r X q) k)
    @ +oo%R --> ((k - q == Delta)%:R : R).
Proof.
move=> Dp2 DpDk; exists (@two_r R number Dp), 0, 0, (pid_mx Dp), 0 => Delta.
exists (fun alpha => two_v number Dk alpha Delta) => H Wd X q k cS kS.
have S_uniq : uniq (grid H Wd) := uniq_rectangle _ _ _.
apply/cvgrPdist_lt => eps eps0; near=> alpha.
have [alpha0 small] : 0 <= alpha /\ 1 * miss alpha 5 < eps.
  by apply: enough_le; rewrite ?ler01 //; near: alpha; apply: nbhs_pinfty_ge; apply: num_real.
have two_small : 2%:R * expR (- alpha) < eps.
  apply: le_lt_trans small; rewrite mul1r ler_wpmul2r ?(ltW (expR_gt0 _)) //.
  by rewrite le_minr !ler_nat.
apply: le_lt_trans two_small.
have centre := lemma_2_two_numbers number_inj 0 X S_uniq Dp2 DpDk alpha0 cS.
have [kc|kc] := eqVneq (k - q) Delta; last first.
  rewrite sub0r normrN ger0_norm; last exact/ltW/softmax_gt0.
  by apply: softmax_other_le centre => //; rewrite -subr_eq0 opprD addrA subr_eq0.
have kE : q + Delta = k by rewrite -kc addrC subrK.
rewrite kE in centre; rewrite ger0_norm ?subr_ge0 ?softmax_le1 //.
by rewrite ler_subl_addr -ler_subl_addl.
Unshelve. all: by end_near.
Qed.

(** ** Theorem 1 with two numbers

    [theorem_1] with [2 <= D_p] instead of [3 <= D_p]: one encoding of two numbers serves every
    kernel, on images of every size. *)
Theorem theorem_1_two_numbers (R : realType) (Dp : nat) : (2 <= Dp)%N ->
  exists r0 : shift -> 'cV[R]_Dp,
  forall (K Din Dh Dout Dk : nat) (W : shift -> 'M[R]_(Din, minn Dh Dout))
    (b : 'rV_(minn Dh Dout)) (B eps : R),
  (0 < Dk)%N -> 0 <= B -> 0 < eps ->
  exists2 L : layer R (K * K) Din Dh Dout Dk Dp, r L = r0 &
  forall H Wd (X : image R Din),
  let S := padded_grid K.-1./2 K./2 K.-1./2 K./2 H Wd in
  (forall k i, k \in S -> `|X k 0 i| <= B) ->
  forall q (o : 'I_(minn Dh Dout)), q \in grid H Wd ->
  `|apply_layer L S X q 0 (widen_ord (geq_minr Dh Dout) o)
    - conv (kernel_shifts K K) W b X q 0 o| < eps.
Proof.
move=> Dp2; exists (@two_r R number Dp) => K Din Dh Dout [//|Dk] W b B eps _ B0 eps0.
pose g := widen_ord (geq_minr Dh Dout); pose Delta := kernel_shifts K K.
have g_inj : injective g by move=> i j /(congr1 val) /= ij; apply: val_inj.
pose f (h : 'I_(K * K)) := Delta`_h.
have f_Delta : perm_eq (codom f) Delta by rewrite /f codom_nth // size_kernel_shifts.
pose M := \sum_o kernel_norm Delta W o; pose alpha := ln (1 + 8%:R * B * M / eps).
pose L : layer R (K * K) Din Dh Dout Dp Dp := {|
  Wqry := fun _ => 0; Wkey := fun _ => 0; Wkeyhat := fun _ => pid_mx Dp; u := fun _ => 0;
  v := fun h => two_v number Dp alpha (f h); r := @two_r R number Dp;
  Wval := wide_values Dh (fun h => W (f h)); Wout := wide_out R (K * K) Dh g;
  bout := b *m select R g |}.
exists (fold_keys Dk L) => // H Wd X S XB q o qI; rewrite fold_keys_same //.
have qS : interior S Delta q by apply: interior_padded.
have fS h : q + f h \in S by apply: qS; rewrite -(perm_mem f_Delta) codom_f.
have M_ge0 : 0 <= M.
  by rewrite sumr_ge0 // => ? _; do 2![apply: sumr_ge0 => ? _]; apply: normr_ge0.
have [||alpha0 small] := @enough_le R (2%:R * B * M) eps alpha 5 _ eps0.
- by rewrite !mulr_ge0 ?ler0n.
- by rewrite /enough !mulrA -natrM.
have S_uniq : uniq S := uniq_rectangle _ _ _.
apply: le_lt_trans small; apply: (@le_trans _ _ (2%:R * (2%:R * expR (- alpha)) * B *
  kernel_norm Delta W o)).
  apply: (nearly_hard_heads W b (geq_minl _ _) g_inj f_Delta o S_uniq qS XB) => [h k kS|h|h].
  - exact/ltW/softmax_gt0.
  - exact: softmax_sum (fS h).
  - have c := lemma_2_two_numbers number_inj 0 X S_uniq Dp2 (leqnn Dp) alpha0 (fS h).
    exact: c.
have x0 : 0 <= expR (- alpha) := ltW (expR_gt0 _).
rewrite [leRHS]mulrAC [2%:R * (2%:R * _) * B]mulrAC ler_pmul ?mulr_ge0 ?ler0n //.
- by do 2![apply: sumr_ge0 => ? _]; apply: normr_ge0.
- by rewrite ler_wpmul2l ?mulr_ge0 ?ler0n // ler_wpmul2r // le_minr !ler_nat.
- exact: kernel_norm_total.
Qed.

(** Refuted: that one number suffices.  Let [D_p = 1], with any encoding and parameters, and let a
    query see the pixels at three different shifts.  Then at one of the three no vector [v] gives
    the pixel more than half of the attention, on a black image: where one number decides, the pixel
    with the middle one never wins. *)
Theorem lemma_2_one_number_refuted (R : realType) Din Dk (Wqry Wkey : 'M[R]_(Dk, Din))
    (Wkeyhat : 'M_(Dk, 1)) (u : 'cV_Dk) (r : shift -> 'cV_1) S q d1 d2 d3 :
  uniq S -> uniq [:: d1; d2; d3] -> q + d1 \in S -> q + d2 \in S -> q + d3 \in S ->
  exists2 Delta, Delta \in [:: d1; d2; d3] & forall v : 'cV_Dk,
  softmax S (relative_scores Wqry Wkey Wkeyhat u v r (fun _ => 0) q) (q + Delta) <= 2%:R^-1.
Proof.
move=> S_uniq d_uniq S1 S2 S3; pose rho d := r d 0 0.
have score v d : relative_scores Wqry Wkey Wkeyhat u v r (fun _ => 0) q (q + d) =
    (v^T *m Wkeyhat) 0 0 * rho d.
  rewrite /relative_scores !(trmx0, mul0mx, mulmx0, add0r, addr0) [q + d]addrC addrK.
  by rewrite mxE big_ord1.
suff [a [Delta [c [aS DS cS aD]]]] : exists a Delta c, [/\ (a \in [:: d1; d2; d3]),
    (Delta \in [:: d1; d2; d3]), (c \in [:: d1; d2; d3]) &
    [/\ a != Delta, c != Delta & rho a <= rho Delta <= rho c]].
  have inS e : e \in [:: d1; d2; d3] -> q + e \in S by rewrite !inE => /or3P[]/eqP->.
  case: aD => aD cD /andP[le1 le2]; exists Delta => // v.
  have [x0|x0] := lerP 0 ((v^T *m Wkeyhat) 0 0).
    apply: (softmax_half S_uniq (inS _ DS) (inS _ cS)); rewrite ?(inj_eq (addrI _)) //.
    by rewrite !score ler_wpmul2l.
  apply: (softmax_half S_uniq (inS _ DS) (inS _ aS)); rewrite ?(inj_eq (addrI _)) //.
  by rewrite !score ler_wnmul2l // ltW.
move: d_uniq; rewrite /= !inE negb_or andbT => /andP[/andP[n12 n13] n23].
have [n21 n31 n32] : [/\ d2 != d1, d3 != d1 & d3 != d2] by split; rewrite eq_sym.
have mem : [/\ d1 \in [:: d1; d2; d3], d2 \in [:: d1; d2; d3] & d3 \in [:: d1; d2; d3]].
  by split; rewrite !inE eqxx ?orbT.
case: mem => m1 m2 m3.
have [l12|/ltW l21] := lerP (rho d1) (rho d2); have [l23|/ltW l32] := lerP (rho d2) (rho d3);
  have [l13|/ltW l31] := lerP (rho d1) (rho d3).
- by exists d1, d2, d3; split=> //; split=> //; apply/andP.
- by exists d1, d2, d3; split=> //; split=> //; apply/andP.
- by exists d1, d3, d2; split=> //; split=> //; apply/andP.
- by exists d3, d1, d2; split=> //; split=> //; apply/andP.
- by exists d2, d1, d3; split=> //; split=> //; apply/andP.
- by exists d2, d3, d1; split=> //; split=> //; apply/andP.
- by exists d3, d2, d1; split=> //; split=> //; apply/andP.
- by exists d3, d2, d1; split=> //; split=> //; apply/andP.
Qed.
