(** Lemma 2: three numbers place the attention.

    Equations (9) and (14); book/theorem.md; attnconv.layers.encodings.QuadraticEncoding. *)

From mathcomp Require Import all_ssreflect all_algebra.
From mathcomp Require Import boolp classical_sets reals topology normedtype sequences exp.
From AttnConv Require Import Attention.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory numFieldNormedType.Exports.
Local Open Scope classical_set_scope.
Local Open Scope ring_scope.

(** The squared length of a shift. *)
Definition sqnorm (delta : shift) : nat := (`|delta.1|%N ^ 2 + `|delta.2|%N ^ 2)%N.

Section Encoding.
Variable R : realType.

Lemma sqnormE (delta : shift) :
  (sqnorm delta)%:R = delta.1%:~R ^+ 2 + delta.2%:~R ^+ 2 :> R.
Proof.
have sqr (z : int) : (`|z|%N ^ 2)%N%:R = z%:~R ^+ 2 :> R.
  by rewrite -abszX natr_absz ger0_norm ?sqr_ge0 // rmorphX.
by rewrite natrD !sqr.
Qed.

(** Equation (9), with zeros appended where [D_p] or [D_k] exceeds 3. *)
Definition column3 (x y z : R) : 'cV_3 := \col_i [:: x; y; z]`_i.
Definition quadratic_r Dp (delta : shift) : 'cV[R]_Dp :=
  pid_mx 3 *m column3 (sqnorm delta)%:R delta.1%:~R delta.2%:~R.
Definition quadratic_v Dk (alpha : R) (Delta : shift) : 'cV[R]_Dk :=
  - alpha *: (pid_mx 3 *m column3 1 (- 2%:R * Delta.1%:~R) (- 2%:R * Delta.2%:~R)).
Definition quadratic_scores Din Dk Dp (u : 'cV_Dk) alpha Delta :
    image R Din -> pixel -> pixel -> R :=
  relative_scores 0 0 (pid_mx Dp : 'M_(Dk, Dp)) u (quadratic_v Dk alpha Delta) (@quadratic_r Dp).

(** Equation (14): the quadratic encoding's score is [-alpha (|delta - Delta|^2 + c)] with
    [c = -|Delta|^2]. *)
Theorem eq_14 Din Dk Dp u alpha Delta (X : image R Din) q k : (3 <= Dp)%N -> (Dp <= Dk)%N ->
  quadratic_scores Dp (u : 'cV_Dk) alpha Delta X q k =
  - alpha * ((sqnorm (k - q - Delta))%:R + - (sqnorm Delta)%:R).
Proof.
move=> Dp3 DpDk; rewrite /quadratic_scores /relative_scores !(trmx0, mulmx0, mul0mx, add0r).
rewrite /quadratic_v /quadratic_r linearZ /= trmx_mul tr_pid_mx -!scalemxAl mulmxA.
rewrite -!(mulmxA (column3 _ _ _)^T) !mul_pid_mx (minn_idPl Dp3).
rewrite (minn_idPr (leq_trans Dp3 DpDk)) minnn (minn_idPr Dp3) pid_mx_1 mul1mx.
rewrite !mxE !big_ord_recl big_ord0 !mxE /= !sqnormE !rmorphB /= addr0 mul1r !mulNr.
rewrite !(sqrrB (_ - _)) (addrACA (_ - _ *+ 2)) addrK -!opprD -!mulrA !mulr_natl.
by rewrite [Delta.1%:~R * _]mulrC [Delta.2%:~R * _]mulrC [in RHS]addrACA -opprD.
Qed.

Variables (o : pixel) (H Wd : nat) (c : pixel).
Let S := rectangle o H Wd.
Hypothesis cS : c \in S.

(** The probabilities of a head with centre [c] on the image [S]. *)
Definition gauss (alpha : R) := softmax S (fun k => - (alpha * (sqnorm (k - c))%:R)).

Lemma eq_18 alpha k :
  gauss alpha k = expR (- alpha) ^+ sqnorm (k - c) /
    \sum_(k' <- S) expR (- alpha) ^+ sqnorm (k' - c).
Proof.
have weight k' : expR (- (alpha * (sqnorm (k' - c))%:R)) = expR (- alpha) ^+ sqnorm (k' - c).
  by rewrite -expRMm mulrN mulrC.
by rewrite /gauss /softmax weight; congr (_ / _); apply: eq_bigr.
Qed.

(** One axis: [sum_(i < n) x^|i - m| <= (1 + x) / (1 - x)]. *)
Lemma geometric_le (x : R) n : 0 <= x -> (1 - x) * (\sum_(0 <= i < n) x ^+ i) <= 1.
Proof.
move=> x0; rewrite big_mkord -opprB mulNr -subrX1 opprB.
by rewrite ler_subl_addr ler_addl exprn_ge0.
Qed.

Lemma axis_le (x : R) n m : 0 <= x <= 1 -> (m < n)%N ->
  (1 - x) * (\sum_(0 <= i < n) x ^+ (`|i%:Z - m%:Z|%N ^ 2)) <= 1 + x.
Proof.
move=> /andP[x0 x1] mn; have [x10 xX] : 0 <= 1 - x /\ forall d, x ^+ (d ^ 2) <= x ^+ d.
  by split=> [|[|d]]; rewrite ?subr_ge0 // ler_wiexpn2l // expnS leq_pmulr.
rewrite (big_cat_nat _ _ _ (leq0n m) (ltnW mn)) /= mulrDr addrC ler_add //.
  rewrite -{1}[m]add0n big_addn; apply: le_trans (geometric_le (n - m) x0).
  rewrite ler_wpmul2l // ler_sum // => i _.
  by rewrite PoszD addrK xX.
rewrite big_nat_rev add0n -[leRHS]mulr1; apply: le_trans (ler_wpmul2l x0 (geometric_le m x0)).
rewrite mulrCA ler_wpmul2l // mulr_sumr big_nat [leRHS]big_nat ler_sum // => i /andP[_ im].
by rewrite -exprS (le_trans (xX _)) // -subzn // addrAC subrr add0r abszN absz_nat.
Qed.

(** The grid: all weights together are at most [((1 + x) / (1 - x))^2], on images of any size. *)
Lemma total_le (x : R) : 0 <= x <= 1 ->
  (1 - x) ^+ 2 * (\sum_(k <- S) x ^+ sqnorm (k - c)) <= (1 + x) ^+ 2.
Proof.
move=> x01; have /allpairsP[[m n] /= []] := cS; rewrite !mem_iota /= !add0n => mH nW c_mn.
have -> : (\sum_(k <- S) x ^+ sqnorm (k - c)) =
    (\sum_(0 <= i < H) x ^+ (`|i%:Z - m%:Z|%N ^ 2)) *
    (\sum_(0 <= j < Wd) x ^+ (`|j%:Z - n%:Z|%N ^ 2)).
  rewrite big_allpairs_dep /index_iota !subn0 big_distrlr /=.
  apply: eq_bigr => i _; apply: eq_bigr => j _.
  by rewrite -exprD c_mn opprD addrACA subrr add0r.
have [x0 x1] := andP x01; rewrite !expr2 mulrACA ler_pmul ?axis_le //.
  all: by rewrite mulr_ge0 ?subr_ge0 // sumr_ge0 // => *; apply: exprn_ge0.
Qed.

(** Every pixel but the centre weighs at most [x]. *)
Lemma total_le_size (x : R) : 0 <= x <= 1 ->
  (\sum_(k <- S) x ^+ sqnorm (k - c)) <= 1 + (H * Wd).-1%:R * x.
Proof.
move=> /andP[x0 x1]; have S_uniq : uniq S := uniq_rectangle _ _ _.
rewrite (big_rem c) //= subrr expr0 ler_add2l -(size_rectangle o) -(size_rem cS) mulr_natl.
rewrite -iter_addr_0 -count_predT -big_const_seq !big_seq ler_sum // => k.
rewrite mem_rem_uniq // inE => /andP[kc _].
have := kc; rewrite -subr_eq0; case: (k - c) => [[[|m]|m] [[|n]|n]] // _;
by rewrite -[leRHS]expr1 ler_wiexpn2l.
Qed.

(** What [T] pixels keep from the centre is at most [miss alpha T]: [e^-alpha] for each other pixel,
    and [4 e^-alpha] for any number of them. *)
Definition miss (alpha : R) (T : nat) : R := Num.min T.-1%:R 4%:R * expR (- alpha).

Lemma miss_ge0 alpha T : 0 <= miss alpha T.
Proof. by rewrite mulr_ge0 ?(ltW (expR_gt0 _)) // le_minr !ler0n. Qed.

Lemma expRN_itv (alpha : R) : 0 <= alpha -> 0 <= expR (- alpha) <= 1.
Proof. by move=> a0; rewrite ltW ?expR_gt0 // -[leRHS]expR0 ler_expR oppr_le0. Qed.

Lemma gauss_center_le alpha : 0 <= alpha -> 1 - miss alpha (H * Wd) <= gauss alpha c.
Proof.
move=> /expRN_itv x01; have := total_le x01; have := total_le_size x01; rewrite eq_18 /miss.
move: (expR _) x01 => x x01; set t := \sum_(k <- S) _; rewrite subrr expr0 mul1r => tT t4.
have [x0 x1] := andP x01.
have t1 : 1 <= t.
  by rewrite /t (big_rem c) //= subrr expr0 ler_addl sumr_ge0 // => *; apply: exprn_ge0.
have t0 : 0 < t by apply: lt_le_trans t1.
rewrite minr_pmull // ler_subl_addl -ler_subl_addr le_minr; apply/andP; split.
  rewrite -ler_subl_addl in tT; apply: le_trans tT.
  by rewrite -(ler_pmul2r t0) mulrBl mulVf ?gt_eqF // mul1r ler_pemulr ?subr_ge0.
have [|x4] := lerP 1 (4%:R * x).
  by apply: le_trans; rewrite ler_subl_addl ler_addr invr_ge0 ltW.
rewrite ler_subl_addl -ler_subl_addr -(ler_pmul2r t0) mulVf ?gt_eqF //.
have x40 : 0 <= 1 - 4%:R * x by rewrite subr_ge0 ltW.
have sq0 : 0 < (1 - x) ^+ 2.
  by rewrite exprn_gt0 // subr_gt0 (le_lt_trans _ x4) // ler_pemull // ler1n.
rewrite -(ler_pmul2l sq0) mulr1 mulrCA; apply: le_trans (ler_wpmul2l x40 t4) _.
have -> : (1 - x) ^+ 2 = (1 + x) ^+ 2 - 4%:R * x.
  by rewrite -[(1 + x) ^+ 2](subrK ((1 - x) ^+ 2)) subr_sqrDB mul1r mulr_natl addrAC subrr add0r.
rewrite mulrBl mul1r ler_add2l ler_opp2 ler_pemulr ?mulr_ge0 ?ler0n //.
by rewrite exprn_ege1 // ler_addl.
Qed.

(** Together the probabilities are 1, so all others share what the centre misses. *)
Lemma gauss_sum alpha : gauss alpha c + (\sum_(k <- S | k != c) gauss alpha k) = 1.
Proof. by rewrite -(bigD1_seq c) ?uniq_rectangle //; apply: (softmax_sum _ cS). Qed.

Lemma gauss_other_le alpha k : 0 <= alpha -> k \in S -> k != c ->
  gauss alpha k <= miss alpha (H * Wd).
Proof.
move=> /gauss_center_le centre kS kc; rewrite ler_subl_addr -ler_subl_addl in centre.
apply: le_trans centre; rewrite -(gauss_sum alpha) addrAC subrr add0r.
rewrite (big_rem k) //= kc ler_addl big_seq_cond sumr_ge0 // => i /andP[/mem_rem iS _].
exact/ltW/softmax_gt0.
Qed.
End Encoding.

Section Lemma2.
Variable R : realType.

(** The scores of the quadratic encoding give exactly these probabilities, by (14). *)
Lemma softmax_quadratic Din Dk Dp (u : 'cV_Dk) (alpha : R) Delta (X : image R Din) S q k :
  (3 <= Dp)%N -> (Dp <= Dk)%N ->
  softmax S (quadratic_scores Dp u alpha Delta X q) k =
  softmax S (fun k => - (alpha * (sqnorm (k - (q + Delta)))%:R)) k.
Proof.
move=> Dp3 DpDk; rewrite -[RHS](softmax_shift _ _ (alpha * (sqnorm Delta)%:R)) /softmax.
have score k' : quadratic_scores Dp u alpha Delta X q k' =
    - (alpha * (sqnorm (k' - (q + Delta)))%:R) + alpha * (sqnorm Delta)%:R.
  by rewrite eq_14 // mulrDr mulrNN mulNr opprD addrA.
by rewrite score; congr (_ / _); apply: eq_bigr => k' _; rewrite score.
Qed.

(** ** Lemma 2, with a number

    On an image of [T = H Wd] pixels, let the head have the quadratic encoding (9) with a centre
    [Delta] and [alpha >= 0], and let the pixel [q + Delta] lie in the image.  Then that pixel gets
    a probability of at least [1 - min(T - 1, 4) e^-alpha], and every other pixel at most
    [min(T - 1, 4) e^-alpha]: so 4 serves images of every size. *)
Theorem lemma_2 Din Dk Dp (u : 'cV_Dk) (alpha : R) Delta (X : image R Din) o H Wd q :
  let S := rectangle o H Wd in
  let p := softmax S (quadratic_scores Dp u alpha Delta X q) in
  (3 <= Dp)%N -> (Dp <= Dk)%N -> 0 <= alpha -> q + Delta \in S ->
  1 - miss alpha (H * Wd) <= p (q + Delta) /\
  forall k, k \in S -> k - q != Delta -> p k <= miss alpha (H * Wd).
Proof.
move=> S p Dp3 DpDk alpha0 cS; rewrite /p softmax_quadratic //; split; first exact: gauss_center_le.
by move=> k kS; rewrite softmax_quadratic // subr_eq addrC => kc; apply: gauss_other_le.
Qed.

(** How large [alpha] must be for [B] times what the centre misses to be below [eps]. *)
Definition enough (B eps : R) : R := ln (1 + 4%:R * B / eps).

Lemma enough_le B eps alpha T : 0 <= B -> 0 < eps -> enough B eps <= alpha ->
  0 <= alpha /\ B * miss alpha T < eps.
Proof.
move=> B0 eps0; have B4 : 0 <= 4%:R * B / eps by rewrite divr_ge0 ?mulr_ge0 ?ler0n // ltW.
have lt01 : 0 < 1 + 4%:R * B / eps by rewrite ltr_paddr.
move=> large; split; first by rewrite (le_trans _ large) // ln_ge0 // ler_addl.
have small : expR (- alpha) <= (1 + 4%:R * B / eps)^-1.
  by rewrite expRN ler_pinv ?inE ?unitf_gt0 ?expR_gt0 // -[leLHS]lnK ?posrE // ler_expR.
apply: (@le_lt_trans _ _ (4%:R * B * (1 + 4%:R * B / eps)^-1)).
  rewrite -[leRHS]mulrA [leRHS]mulrCA ler_wpmul2l // ler_pmul ?(ltW (expR_gt0 _)) //.
    by rewrite le_minr !ler0n.
  by rewrite le_minl lexx orbT.
rewrite ltr_pdivr_mulr // mulrDr mulr1 mulrCA divff ?gt_eqF // mulr1 ltr_addr //.
Qed.

(** ** Lemma 2 as in the paper: a limit

    For any dimensions [D_p >= 3] and [D_k >= D_p] there are a relative encoding and parameters such
    that, for every centre [Delta], some vectors [v_alpha] give, as [alpha] tends to infinity,
    probabilities that tend to 1 at the pixel [q + Delta] and to 0 at all others, at every query
    [q] of every image in which [q + Delta] lies. *)
Theorem lemma_2_limit Din Dk Dp : (3 <= Dp)%N -> (Dp <= Dk)%N ->
  exists (r : shift -> 'cV[R]_Dp) (Wqry Wkey : 'M_(Dk, Din)) (Wkeyhat : 'M_(Dk, Dp)) (u : 'cV_Dk),
  forall Delta, exists v : R -> 'cV_Dk,
  forall H Wd (X : image R Din) q k, q + Delta \in grid H Wd -> k \in grid H Wd ->
  (fun alpha => softmax (grid H Wd) (relative_scores Wqry Wkey Wkeyhat u (v alpha) r X q) k)
    @ +oo%R --> ((k - q == Delta)%:R : R).
Proof.
move=> Dp3 DpDk; exists (@quadratic_r R Dp), 0, 0, (pid_mx Dp), 0 => Delta.
exists (fun alpha => quadratic_v Dk alpha Delta) => H Wd X q k cS kS.
apply/cvgrPdist_lt => eps eps0; near=> alpha.
have [alpha0 small] : 0 <= alpha /\ 1 * miss alpha (H * Wd) < eps.
  by apply: enough_le; rewrite ?ler01 //; near: alpha; apply: nbhs_pinfty_ge; apply: num_real.
rewrite mul1r in small; apply: le_lt_trans small.
have [centre others] := lemma_2 0 X Dp3 DpDk alpha0 cS.
have [kc|kc] := eqVneq (k - q) Delta; last first.
  by rewrite sub0r normrN ger0_norm; [exact: others | exact/ltW/softmax_gt0].
have kE : q + Delta = k by rewrite -kc addrC subrK.
rewrite kE in centre; rewrite ger0_norm ?subr_ge0 ?softmax_le1 //.
by rewrite ler_subl_addr -ler_subl_addl.
Unshelve. all: by end_near.
Qed.

(** With [+alpha] instead of [-alpha] the head looks away from its centre: that pixel gets no more
    than its share [1 / T]. *)
Lemma wrong_sign_share Din Dk Dp (alpha : R) Delta (X : image R Din) o H Wd q :
  let S := rectangle o H Wd in
  (3 <= Dp)%N -> (Dp <= Dk)%N -> 0 <= alpha -> q + Delta \in S ->
  softmax S (quadratic_scores Dp (0 : 'cV_Dk) (- alpha) Delta X q) (q + Delta) <= (H * Wd)%:R^-1.
Proof.
move=> S Dp3 DpDk alpha0 cS; rewrite softmax_quadratic // /softmax subrr mulr0 oppr0 expR0 div1r.
have HW0 : 0 < (H * Wd)%:R :> R.
  by rewrite ltr0n -(size_rectangle o) -has_predT; apply/hasP; exists (q + Delta).
rewrite ler_pinv ?inE ?unitf_gt0 ?(sum_expR_gt0 _ cS) //.
rewrite -(size_rectangle o) -iter_addr_0 -count_predT -big_const_seq ler_sum // => k _.
by rewrite mulNr opprK -[leLHS]expR0 ler_expR mulr_ge0 ?ler0n.
Qed.

(** Refuted: that the sign in (9) does not matter.  With [+alpha] instead of [-alpha] Lemma 2 fails
    on every image of [T >= 2] pixels, for every [alpha > ln 8]. *)
Theorem lemma_2_sign_refuted Din Dk Dp (alpha : R) Delta (X : image R Din) o H Wd q :
  let S := rectangle o H Wd in
  let p := softmax S (quadratic_scores Dp (0 : 'cV_Dk) (- alpha) Delta X q) in
  (3 <= Dp)%N -> (Dp <= Dk)%N -> ln 8%:R < alpha -> (2 <= H * Wd)%N -> q + Delta \in S ->
  ~ 1 - miss alpha (H * Wd) <= p (q + Delta).
Proof.
move=> S p Dp3 DpDk large T2 cS good; have alpha0 : 0 <= alpha.
  by apply: le_trans (ltW large); rewrite ln_ge0 // ler1n.
have half : p (q + Delta) <= 2%:R^-1.
  apply: le_trans (wrong_sign_share X Dp3 DpDk alpha0 cS) _.
  have T0 : (0 < H * Wd)%N by apply: leq_trans T2.
  by rewrite lef_pinv ?posrE ?ltr0n ?ler_nat.
have small : expR (- alpha) < 8%:R^-1.
  by rewrite expRN ltf_pinv ?posrE ?expR_gt0 ?ltr0n // -[X in X < _]lnK ?posrE ?ltr0n // ltr_expR.
have miss_lt : miss alpha (H * Wd) < 2%:R^-1.
  apply: (@le_lt_trans _ _ (4%:R * expR (- alpha))).
    by rewrite ler_wpmul2r ?(ltW (expR_gt0 _)) // le_minl lexx orbT.
  have -> : 2%:R^-1 = 4%:R * 8%:R^-1 :> R.
    by rewrite (natrM _ 4 2) invfM mulrA divff ?mul1r // pnatr_eq0.
  by rewrite ltr_pmul2l ?ltr0n.
have halves : 2%:R^-1 + 2%:R^-1 = 1 :> R by rewrite -[LHS]mulr2n -[LHS]mulr_natl mulfV ?pnatr_eq0.
have := le_trans good half; rewrite ler_subl_addr -{1}halves ler_add2l.
by rewrite leNgt miss_lt.
Qed.

(** Refuted: Lemma 2 as printed, with probabilities of exactly 1 and 0 for some finite scores, on an
    image of at least two pixels. *)
Theorem lemma_2_printed_refuted (S : seq pixel) (A : pixel -> R) c k :
  c \in S -> k \in S -> k != c -> ~ (softmax S A c = 1 /\ softmax S A k = 0).
Proof. by move=> cS kS kc [_ /eqP]; rewrite gt_eqF // softmax_gt0. Qed.
End Lemma2.
