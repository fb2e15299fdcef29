(** Absolute encodings suffice: Theorem 1 without relative encodings.

    Equations (2), (3) and (7); book/proofs.md.  A pixel [k] carries four numbers beside its
    channels, [1], its row, its column and the sum of their squares.  Three-dimensional queries and
    keys then make the scores of the quadratic encoding (9), up to a number that depends on the
    query only and that the softmax does not see. *)

From mathcomp Require Import all_ssreflect all_algebra reals sequences exp.
From AttnConv Require Import Attention Lemma1 Lemma2 Theorem1.
Set Implicit Arguments.
Unset Strict Implicit.
Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Absolute.
Variable R : realType.

(** Equation (2) on an image, pixel by pixel (see [eq_6]); with a position added to each pixel it is
    (3) and (7). *)
Definition content_scores D Dk (Wqry Wkey : 'M[R]_(D, Dk)) (X : image R D) (q k : pixel) : R :=
  (X q *m Wqry *m Wkey^T *m (X k)^T) 0 0.

(** The position [p_k], and an image whose pixels carry it: four more channels, which the image
    leaves free. *)
Definition absolute_p (k : pixel) : 'rV[R]_4 :=
  \row_i [:: 1; k.1%:~R; k.2%:~R; (sqnorm k)%:R]`_i.
Definition with_position D (p : image R 4) (X : image R D) : image R (D + 4) :=
  fun k => row_mx (X k) 0 + row_mx 0 (p k).

(** The query looks at [(1, q + Delta)], the key at [-alpha (|k|^2, -2 k)]. *)
Definition absolute_qry (Delta : shift) : 'M[R]_(4, 3) := \matrix_(i, j) (nth [::]
  [:: [:: 1; Delta.1%:~R; Delta.2%:~R]; [:: 0; 1; 0]; [:: 0; 0; 1]; [::]] i)`_j.
Definition absolute_key (alpha : R) : 'M[R]_(4, 3) := - alpha *: \matrix_(i, j) (nth [::]
  [:: [::]; [:: 0; - 2%:R; 0]; [:: 0; 0; - 2%:R]; [:: 1; 0; 0]] i)`_j.
Definition below D Dk (M : 'M[R]_(4, 3)) : 'M[R]_(D + 4, Dk) := col_mx 0 (M *m pid_mx 3).

Lemma with_positionE D p (X : image R D) k : with_position p X k = row_mx (X k) (p k).
Proof. by rewrite /with_position add_row_mx addr0 add0r. Qed.

(** ** Absolute encodings make the quadratic scores

    On the numbers [(1, i, j, i^2 + j^2)] of each pixel [(i, j)], and with [3 <= D_k], some query
    and key matrices give the scores [-alpha (|k - q - Delta|^2 - |q + Delta|^2)] at all pixels of
    the infinite grid, whatever the image. *)
Theorem eq_7_quadratic D Dk (alpha : R) Delta (X : image R D) q k : (3 <= Dk)%N ->
  content_scores (below D Dk (absolute_qry Delta)) (below D Dk (absolute_key alpha))
    (with_position absolute_p X) q k =
  - alpha * ((sqnorm (k - q - Delta))%:R - (sqnorm (q + Delta))%:R).
Proof.
move=> Dk3; rewrite /content_scores !with_positionE /below.
rewrite mul_row_col mulmx0 add0r -mulmxA -trmx_mul mul_row_col mulmx0 add0r.
rewrite !trmx_mul tr_pid_mx !mulmxA -(mulmxA (_ *m absolute_qry _)) mul_pid_mx minnn.
rewrite (minn_idPr Dk3) pid_mx_1 mulmx1 -mulmxA -trmx_mul.
rewrite !mxE !big_ord_recl big_ord0 !mxE !big_ord_recl !big_ord0 !mxE /=.
rewrite !(mulr0, mul0r, mulr1, mul1r, addr0, add0r) !sqnormE !rmorphB !rmorphD /=.
set a := q.1%:~R; set b := q.2%:~R; set c := Delta.1%:~R; set d := Delta.2%:~R.
set x := k.1%:~R; set y := k.2%:~R.
have axis (s t w : R) : (w - s - t) ^+ 2 - (s + t) ^+ 2 = w ^+ 2 + (s + t) * (w * - 2%:R).
  rewrite -addrA -opprD sqrrB addrK mulrA mulrN mulr_natr [_ * (s + t)]mulrC.
  by rewrite [(s + t) * w]mulrC.
rewrite opprD addrACA !axis ![x * (_ * _)]mulrCA ![y * (_ * _)]mulrCA.
rewrite ![_ * (- alpha * _)]mulrCA [_ * - alpha]mulrC -!mulrDr [c + a]addrC [d + b]addrC.
by rewrite addrACA.
Qed.

(** Values that do not look at the positions. *)
Lemma mhsa_with_position N D Dh Dout S a p (Wval : 'I_N -> 'M[R]_(D, Dh)) (Wout : 'M_(N * Dh, Dout))
    bout X q :
  mhsa S a (fun h => col_mx (Wval h) 0) Wout bout (with_position p X) q =
  mhsa S a Wval Wout bout X q.
Proof.
congr (mxvec _ *m _ + _); apply/row_matrixP=> h; rewrite !rowK !mulmx_suml.
apply: eq_bigr => k _; rewrite -!scalemxAl with_positionE.
by rewrite mul_row_col mulmx0 addr0.
Qed.

(** ** Theorem 1 with absolute encodings

    There is one encoding [p] of pixels by four numbers that serves every kernel: for every kernel
    size [K], dimensions with [3 <= D_k], [K x K] kernel with [min(D_h, D_out)] output channels,
    bound [B] and [eps > 0] some query, key, value and output matrices of [K^2] heads make the layer
    (2), (3) and (4), which reads the image with [p] added, as accurate as in [theorem_1]: on images
    of every size, padded with anything, the first [min(D_h, D_out)] outputs are within [eps] of the
    convolution at every pixel of the image. No score depends on the shift by itself. *)
Theorem theorem_1_absolute : exists p : image R 4,
  forall (K D Dh Dout Dk : nat) (W : shift -> 'M[R]_(D, minn Dh Dout)) (b : 'rV_(minn Dh Dout))
    (B eps : R), (3 <= Dk)%N -> 0 <= B -> 0 < eps ->
  exists (Wqry Wkey : 'I_(K * K) -> 'M[R]_(D + 4, Dk)) (Wval : 'I_(K * K) -> 'M[R]_(D + 4, Dh))
    (Wout : 'M[R]_(K * K * Dh, Dout)) (bout : 'rV[R]_Dout),
  forall H Wd (X : image R D),
  let S := padded_grid K.-1./2 K./2 K.-1./2 K./2 H Wd in let Y := with_position p X in
  (forall k i, k \in S -> `|X k 0 i| <= B) ->
  forall q (o : 'I_(minn Dh Dout)), q \in grid H Wd ->
  `|mhsa S (probabilities S (fun h => content_scores (Wqry h) (Wkey h) Y)) Wval Wout bout Y q 0
      (widen_ord (geq_minr Dh Dout) o)
    - conv (kernel_shifts K K) W b X q 0 o| < eps.
Proof.
exists absolute_p => K D Dh Dout Dk W b B eps Dk3 B0 eps0.
pose g := widen_ord (geq_minr Dh Dout); pose Delta := kernel_shifts K K.
have g_inj : injective g by move=> i j /(congr1 val) /= ij; apply: val_inj.
pose f (h : 'I_(K * K)) := Delta`_h.
have f_Delta : perm_eq (codom f) Delta by rewrite /f codom_nth // size_kernel_shifts.
pose M := \sum_o kernel_norm Delta W o; pose alpha := ln (1 + 8%:R * B * M / eps).
exists (fun h => below D Dk (absolute_qry (f h))), (fun h => below D Dk (absolute_key alpha)).
exists (fun h => col_mx (wide_values Dh (fun h => W (f h)) h) 0), (wide_out R (K * K) Dh g).
exists (b *m select R g) => H Wd X S Y XB q o qI; rewrite mhsa_with_position.
have qS : interior S Delta q by apply: interior_padded.
have fS h : q + f h \in S by apply: qS; rewrite -(perm_mem f_Delta) codom_f.
have B_M : 0 <= 2%:R * B * M.
  rewrite mulr_ge0 ?mulr_ge0 ?ler0n // sumr_ge0 // => ? _.
  by do 2![apply: sumr_ge0 => ? _]; apply: normr_ge0.
have [|alpha0 small] := @enough_le _ (2%:R * B * M) eps alpha (size S) B_M eps0.
  by rewrite /enough !mulrA -natrM.
apply: le_lt_trans small.
have same h k : probabilities S (fun h => content_scores (below D Dk (absolute_qry (f h)))
    (below D Dk (absolute_key alpha)) Y) h q k =
    softmax S (fun k => - (alpha * (sqnorm (k - (q + f h)))%:R)) k.
  rewrite -[RHS](softmax_shift _ _ (alpha * (sqnorm (q + f h))%:R)) /probabilities /softmax.
  have score k' : content_scores (below D Dk (absolute_qry (f h))) (below D Dk (absolute_key alpha))
      Y q k' = - (alpha * (sqnorm (k' - (q + f h)))%:R) + alpha * (sqnorm (q + f h))%:R.
    by rewrite eq_7_quadratic // mulrBr !mulNr opprK opprD addrA.
  by rewrite score; congr (_ / _); apply: eq_bigr => k' _; rewrite score.
apply: (@le_trans _ _ (2%:R * miss alpha (size S) * B * kernel_norm Delta W o)).
  apply: (nearly_hard_heads W b (geq_minl _ _) g_inj f_Delta) => // [|h k kS|h|h].
  - exact: uniq_rectangle.
  - exact/ltW/softmax_gt0.
  - exact: softmax_sum (fS h).
  - by rewrite same size_rectangle; apply: gauss_center_le.
rewrite [leRHS]mulrAC [2%:R * miss _ _ * B]mulrAC ler_wpmul2l ?kernel_norm_total //.
by rewrite mulr_ge0 ?miss_ge0 // mulr_ge0 ?ler0n.
Qed.
End Absolute.
